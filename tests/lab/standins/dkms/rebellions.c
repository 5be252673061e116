// SPDX-License-Identifier: GPL-2.0-or-later
// Copyright (c) 2026 The rebellions.npu authors
// Stand-in for the rebellions kernel module: binds every function of PCI vendor 1eff, and gives what public programs read:
// /dev/rblnN and /dev/rsd0 (0666) and /sys/class/rebellions. It drives no silicon; nothing here is the vendor's.
#include <linux/cdev.h>
#include <linux/delay.h>
#include <linux/device.h>
#include <linux/fs.h>
#include <linux/idr.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/version.h>

#ifndef RBLN_VERSION
#error "RBLN_VERSION is the driver's version"
#endif
// What each device comes up with: 0 is READY.
#ifndef RBLN_STATUS
#define RBLN_STATUS 0
#endif
#define MAX_NPUS 64

static bool broken;
module_param(broken, bool, 0444);
MODULE_PARM_DESC(broken, "fault: no device can be probed");
static unsigned int hang;
module_param(hang, uint, 0444);
MODULE_PARM_DESC(hang, "fault: seconds that loading hangs; a deadly signal ends it");
static unsigned int stuck;
module_param(stuck, uint, 0444);
MODULE_PARM_DESC(stuck, "fault: seconds that loading hangs, and no signal ends it");
static char *fw[MAX_NPUS], *smc[MAX_NPUS];
module_param_array(fw, charp, NULL, 0444);
MODULE_PARM_DESC(fw, "what each card was flashed with; empty: the driver's version");
module_param_array(smc, charp, NULL, 0444);
MODULE_PARM_DESC(smc, "the same of its management controller");

struct rbln {
	int number;
	const char *card;
	u64 dram_total, dram_used;
	unsigned int status, group;
};

static dev_t first;
static struct cdev cdev;
static struct class *class;
static struct device *rsd;
static bool have_rsd0;
static DEFINE_IDA(numbers);
static DEFINE_MUTEX(table_lock);
static struct rbln *table[MAX_NPUS];

static ssize_t rbln_read(struct file *file, char __user *to, size_t count, loff_t *at)
{
	char text[64];
	int length = scnprintf(text, sizeof(text), "rebellions %s stand-in rbln%u\n", RBLN_VERSION, iminor(file_inode(file)));

	return simple_read_from_buffer(to, count, at, text, length);
}

// The owner is what keeps the module from unloading while a node is open.
static const struct file_operations rbln_fops = { .owner = THIS_MODULE, .read = rbln_read, .llseek = default_llseek };

static ssize_t rsd_read(struct file *file, char __user *to, size_t count, loff_t *at)
{
	static const char text[] = "rebellions " RBLN_VERSION " stand-in rsd0\n";

	return simple_read_from_buffer(to, count, at, text, sizeof(text) - 1);
}

static const struct file_operations rsd_fops = { .owner = THIS_MODULE, .read = rsd_read, .llseek = default_llseek };
static struct miscdevice rsd0 = { .minor = MISC_DYNAMIC_MINOR, .name = "rsd0", .mode = 0666, .fops = &rsd_fops };

static struct rbln *of(struct device *dev)
{
	return dev_get_drvdata(dev);
}

static ssize_t kernel_version_show(struct device *dev, struct device_attribute *attr, char *text)
{
	return sysfs_emit(text, "%s\n", RBLN_VERSION);
}
static DEVICE_ATTR_RO(kernel_version);

static const char *flashed(char *version)
{
	return version && *version ? version : RBLN_VERSION;
}

static ssize_t fw_ver_show(struct device *dev, struct device_attribute *attr, char *text)
{
	return sysfs_emit(text, "%s\n", flashed(fw[of(dev)->number]));
}
static DEVICE_ATTR_RO(fw_ver);

static ssize_t smc_ver_show(struct device *dev, struct device_attribute *attr, char *text)
{
	return sysfs_emit(text, "%s\n", flashed(smc[of(dev)->number]));
}
static DEVICE_ATTR_RO(smc_ver);

static ssize_t card_name_show(struct device *dev, struct device_attribute *attr, char *text)
{
	return sysfs_emit(text, "%s\n", of(dev)->card);
}
static DEVICE_ATTR_RO(card_name);

static ssize_t status_show(struct device *dev, struct device_attribute *attr, char *text)
{
	return sysfs_emit(text, "%u\n", of(dev)->status);
}

static ssize_t status_store(struct device *dev, struct device_attribute *attr, const char *text, size_t count)
{
	int rc = kstrtouint(text, 0, &of(dev)->status);

	return rc ? rc : count;
}
static DEVICE_ATTR_RW(status);

static ssize_t group_id_show(struct device *dev, struct device_attribute *attr, char *text)
{
	return sysfs_emit(text, "%u\n", of(dev)->group);
}

static ssize_t group_id_store(struct device *dev, struct device_attribute *attr, const char *text, size_t count)
{
	int rc = kstrtouint(text, 0, &of(dev)->group);

	return rc ? rc : count;
}
static DEVICE_ATTR_RW(group_id);

static ssize_t dram_total_show(struct device *dev, struct device_attribute *attr, char *text)
{
	return sysfs_emit(text, "%llu\n", of(dev)->dram_total);
}
static DEVICE_ATTR_RO(dram_total);

static ssize_t dram_used_show(struct device *dev, struct device_attribute *attr, char *text)
{
	return sysfs_emit(text, "%llu\n", of(dev)->dram_used);
}

static ssize_t dram_used_store(struct device *dev, struct device_attribute *attr, const char *text, size_t count)
{
	int rc = kstrtou64(text, 0, &of(dev)->dram_used);

	return rc ? rc : count;
}
static DEVICE_ATTR_RW(dram_used);

static ssize_t qstat_show(struct device *dev, struct device_attribute *attr, char *text)
{
	return sysfs_emit(text, "0\n");
}
static DEVICE_ATTR_RO(qstat);

static ssize_t topology_show(struct device *dev, struct device_attribute *attr, char *text)
{
	int number = of(dev)->number, other, length = sysfs_emit(text, "rbln%d", number);

	mutex_lock(&table_lock);
	for (other = 0; other < MAX_NPUS; other++)
		if (table[other])
			length += sysfs_emit_at(text, length, " %d", other == number ? 0 : 4);
	mutex_unlock(&table_lock);
	return length + sysfs_emit_at(text, length, "\n");
}
static DEVICE_ATTR_RO(topology);

static struct attribute *rbln_attrs[] = {
	&dev_attr_kernel_version.attr, &dev_attr_fw_ver.attr, &dev_attr_smc_ver.attr, &dev_attr_card_name.attr,
	&dev_attr_status.attr, &dev_attr_group_id.attr, &dev_attr_dram_total.attr, &dev_attr_dram_used.attr,
	&dev_attr_qstat.attr, &dev_attr_topology.attr, NULL
};
ATTRIBUTE_GROUPS(rbln);

static int bus_of(struct device *dev, const void *number)
{
	struct rbln *one = dev->parent ? dev_get_drvdata(dev) : NULL;

	return one && one->number == *(const int *)number;
}

static ssize_t rsd_group_show(struct device *dev, struct device_attribute *attr, char *text)
{
	int length = sysfs_emit(text, "group_id,bus,device\n"), number;

	for (number = 0; number < MAX_NPUS; number++) {
		struct device *one = class_find_device(class, NULL, &number, bus_of);

		if (!one)
			continue;
		length += sysfs_emit_at(text, length, "%u,%02x,rbln%d\n", of(one)->group, to_pci_dev(one->parent)->bus->number, number);
		put_device(one);
	}
	return length;
}
static DEVICE_ATTR_RO(rsd_group);

static ssize_t hard_reset_show(struct device *dev, struct device_attribute *attr, char *text)
{
	return sysfs_emit(text, "0\n");
}

static ssize_t hard_reset_store(struct device *dev, struct device_attribute *attr, const char *text, size_t count)
{
	dev_warn(dev, "stand-in: hard reset asked for\n");
	return count;
}
static DEVICE_ATTR_RW(hard_reset);

static struct attribute *rsd_attrs[] = { &dev_attr_rsd_group.attr, NULL };
static const struct attribute_group rsd_group = { .attrs = rsd_attrs };
static struct attribute *rsd0_attrs[] = { &dev_attr_hard_reset.attr, NULL };
static const struct attribute_group rsd0_group = { .name = "rsd0", .attrs = rsd0_attrs };
static const struct attribute_group *rsd_groups[] = { &rsd_group, &rsd0_group, NULL };

static void identify(struct rbln *one, unsigned int device)
{
	one->card = "RBLN-UNKNOWN";
	switch (device & 0xfff0) {
	case 0x1220:
		one->card = "RBLN-CA22";
		one->dram_total = 16877879296ULL;
		break;
	case 0x1250:
		one->card = "RBLN-CA25";
		one->dram_total = 16877879296ULL;
		break;
	case 0x2130:
		one->card = "RBLN-CR13";
		one->dram_total = 150323855360ULL;
		break;
	}
}

static int rbln_probe(struct pci_dev *pci, const struct pci_device_id *id)
{
	struct rbln *one;
	struct device *dev;
	int rc;

	if (broken) {
		dev_err(&pci->dev, "stand-in: broken by parameter\n");
		return -EIO;
	}
	rc = pci_enable_device(pci);
	if (rc)
		return rc;
	one = kzalloc(sizeof(*one), GFP_KERNEL);
	if (!one) {
		rc = -ENOMEM;
		goto disable;
	}
	rc = ida_alloc_max(&numbers, MAX_NPUS - 1, GFP_KERNEL);
	if (rc < 0)
		goto free;
	one->number = rc;
	one->status = RBLN_STATUS;
	identify(one, pci->device);
	pci_set_drvdata(pci, one);
	dev = device_create_with_groups(class, &pci->dev, first + one->number, one, rbln_groups, "rbln%d", one->number);
	if (IS_ERR(dev)) {
		rc = PTR_ERR(dev);
		goto number;
	}
	mutex_lock(&table_lock);
	table[one->number] = one;
	mutex_unlock(&table_lock);
	dev_info(&pci->dev, "stand-in %s: %s is rbln%d\n", RBLN_VERSION, one->card, one->number);
	return 0;
number:
	ida_free(&numbers, one->number);
free:
	kfree(one);
disable:
	pci_disable_device(pci);
	return rc;
}

static void rbln_remove(struct pci_dev *pci)
{
	struct rbln *one = pci_get_drvdata(pci);

	mutex_lock(&table_lock);
	table[one->number] = NULL;
	mutex_unlock(&table_lock);
	device_destroy(class, first + one->number);
	ida_free(&numbers, one->number);
	kfree(one);
	pci_disable_device(pci);
}

static const struct pci_device_id ids[] = { { PCI_DEVICE(0x1eff, PCI_ANY_ID) }, { } };
MODULE_DEVICE_TABLE(pci, ids);
static struct pci_driver driver = { .name = "rebellions", .id_table = ids, .probe = rbln_probe, .remove = rbln_remove };

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
static char *rbln_devnode(const struct device *dev, umode_t *mode)
#else
static char *rbln_devnode(struct device *dev, umode_t *mode)
#endif
{
	if (mode)
		*mode = 0666;
	return NULL;
}

static int __init rbln_init(void)
{
	int rc;

	if (hang) {
		pr_warn("rebellions: stand-in: loading hangs for %u s by parameter\n", hang);
		if (schedule_timeout_killable(hang * HZ))
			return -EINTR;
	}
	if (stuck)
		ssleep(stuck);
	rc = alloc_chrdev_region(&first, 0, MAX_NPUS, "rbln");
	if (rc)
		return rc;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0)
	class = class_create("rebellions");
#else
	class = class_create(THIS_MODULE, "rebellions");
#endif
	if (IS_ERR(class)) {
		rc = PTR_ERR(class);
		goto region;
	}
	class->devnode = rbln_devnode;
	cdev_init(&cdev, &rbln_fops);
	cdev.owner = THIS_MODULE;
	rc = cdev_add(&cdev, first, MAX_NPUS);
	if (rc)
		goto class;
	rsd = device_create_with_groups(class, NULL, 0, NULL, rsd_groups, "rsd");
	if (IS_ERR(rsd)) {
		rc = PTR_ERR(rsd);
		goto cdev;
	}
	rc = pci_register_driver(&driver);
	if (rc)
		goto rsd;
	if (!ida_is_empty(&numbers)) {
		rc = misc_register(&rsd0);
		if (rc)
			goto driver;
		have_rsd0 = true;
	}
	return 0;
driver:
	pci_unregister_driver(&driver);
rsd:
	device_unregister(rsd);
cdev:
	cdev_del(&cdev);
class:
	class_destroy(class);
region:
	unregister_chrdev_region(first, MAX_NPUS);
	return rc;
}

static void __exit rbln_exit(void)
{
	if (have_rsd0)
		misc_deregister(&rsd0);
	pci_unregister_driver(&driver);
	device_unregister(rsd);
	cdev_del(&cdev);
	class_destroy(class);
	unregister_chrdev_region(first, MAX_NPUS);
}

module_init(rbln_init);
module_exit(rbln_exit);
MODULE_LICENSE("GPL");
MODULE_VERSION(RBLN_VERSION);
MODULE_DESCRIPTION("Stand-in for the rebellions module, for tests");
