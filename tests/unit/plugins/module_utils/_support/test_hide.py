# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import json

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.mask import MASK
from ansible_collections.rebellions.npu.plugins.module_utils._support.hide import Hider, masked_line, without_secrets

S = "n0t-a-Real-one-7"
T = "n0tArealOne7"


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


AUTHS = json.dumps({"auths": {"r.example": {"auth": b64(f"joe:{S}")}}})
KUBECONFIG = f"kind: Config\nusers:\n- name: a\n  user:\n    client-key-data: {b64(S * 9)}\n    token: {S}\n"
# One of each kind, as hosts and clusters show it.
KINDS = {
    "bearer": f"Authorization: Bearer {S}",
    "address": f"pull http://joe:{S}@proxy.example:3128 refused",
    "unit": f'Environment="HTTPS_PROXY=http://u:{S}@p:1"',
    "docker_auth": AUTHS,
    "pull_secret": f"  .dockerconfigjson: {b64(AUTHS)}",
    "twice": f"data: {b64(b64(AUTHS))}",
    "kubeconfig": KUBECONFIG,
    "kubeconfig_encoded": f"payload={b64(KUBECONFIG)}",
    "pem": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{S}\n-----END OPENSSH PRIVATE KEY-----",
    "pem_end": f"MIIE{S}\n{S}\n-----END RSA PRIVATE KEY-----\nthe rest stays",
    "aws_id": "key AKIAN0TAREALONE7XXXX here",
    "aws_key": f"AWS_SECRET_ACCESS_KEY={S}",
    "env": f"DB_PASS={S}",
    "json": f'{{"password": "{S}"}}',
    "toml": f"identitytoken = '{S}'",
    "yaml": f"password: |\n  {S}\nnext: 1",
    "jwt": "seen eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.n0tArealOne7n0tArealOne7",
    "github": f"ghp_{T * 3}",
    "hash": f"root:$6$abc${T * 3}:19000",
    "apache": f"joe:$apr1$abcdefgh${T * 2}",
    "netrc": f"machine h login joe password {S}",
    "cookie": f"Set-Cookie: sid={S}; Path=/",
    "option": f"curl -u joe:{S} https://h",
    "login": f"docker login -u joe -p {S} r.example",
    "sshpass": f"sshpass -p {S} ssh x",
    "ipmitool": f"ipmitool -H h -U admin -P {S} chassis",
    "mysql": f"mysql -u root -p{S} db",
    "join": f"kubeadm join h:6443 --token abcdef.{T.lower()}1234",
    "bootstrap": f"bootstrap token abcdef.{T.lower()}1234 is used",
    "slack": f"POST https://hooks.slack.com/services/T0/B0/{T}",
    "npm": f"npm_{T * 3}",
    "pypi": f"pypi-{T * 3}",
    "ngc": f"nvapi-{T * 3}",
    "google": f"AIzaSy{T * 3}",
    "stripe": f"sk_live_{T * 2}",
    "age": f"AGE-SECRET-KEY-1{T.upper() * 4}",
    "ldap": f"bindpw {S}",
    "snmp": f"rocommunity {S}",
}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_secret_of_each_kind_is_hidden_as_it_is_and_encoded(kind: str) -> None:
    lines = base64.encodebytes(KINDS[kind].encode()).decode()
    texts = {"plain": KINDS[kind], "coded": f"x {b64(KINDS[kind])} y", "lines": lines}
    found = without_secrets(texts)
    for text in found.values():
        assert S not in text and T.lower() not in text.lower().replace("\n", "") and b64(S)[:16] not in text, text
        assert MASK in text
    assert b64(KINDS[kind]) not in found["coded"]


def test_the_kinds_are_many() -> None:
    assert len(KINDS) >= 30


def test_a_secret_that_one_text_names_is_hidden_in_all_others() -> None:
    said = f"the word {S} is said here; {b64(S)}; {b64(f'x {S} and some more')}; https://h/x/{S}/y"
    found = without_secrets({"log": said, "config": f"password={S}"})
    assert found["log"].count(MASK) == 4 and S not in found["log"] and found["config"] == f"password={MASK}"


def test_many_tokens_do_not_hide_that_a_password_is_repeated() -> None:
    """A token is known by its form wherever it stands; a password only by what has named it."""
    tokens = "\n".join(f"Bearer eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn{number:03}.{T * 3}" for number in range(250))
    found = without_secrets({"log": tokens, "config": f"password={S}", "other": f"joe has said {S}"})
    assert S not in found["other"] and "eyJ" not in found["log"]


def test_short_and_plain_words_are_hidden_only_where_they_are_named() -> None:
    found = without_secrets({"config": "password=changeme\npassword=root123", "log": "please changeme, root123"})
    assert found == {"config": f"password={MASK}\npassword={MASK}", "log": "please changeme, root123"}


def test_harmless_text_stays() -> None:
    text = (
        "sha256:%s /usr/lib/x86_64-linux-gnu/librbln-thunk.so.3 kubernetes-container-runtime-interface\n"
        "linux-image-6.8.0-117-generic 0000:83:00.0 rebellions.ai/npu: 8 serial8250: ttyS0 at I/O 0x3f8\n%s\n"
    ) % ("a" * 64, b64("a harmless text that somebody has encoded"))
    assert without_secrets({"a": text}) == {"a": text}


def test_what_is_packed_in_base64_is_hidden_for_nobody_sees_into_it() -> None:
    import gzip

    packed = base64.b64encode(gzip.compress(f"password={S}".encode())).decode()
    assert without_secrets({"a": f"release: {packed}"}) == {"a": f"release: {MASK}"}


SMI = '{"sid": "RB25A0017", "uuid": "a1b2c3d4-0001", "serial": 123456789, "npu": 0}'


def test_serial_numbers_are_the_same_in_all_files_of_a_host() -> None:
    texts = {
        "smi": SMI,
        "lspci": "Capabilities: [148 v1] Device Serial Number 12-34-56-ff-fe-78-9a-bc",
        "log": "card RB25A0017 (a1b2c3d4-0001) fell off; machine 7XK2Z13 is up",
    }
    found = without_secrets(texts, ["7XK2Z13"])
    assert found["smi"] == '{"sid": "SERIAL-2", "uuid": "SERIAL-3", "serial": "SERIAL-4", "npu": 0}'
    assert json.loads(found["smi"])["npu"] == 0
    assert found["log"] == "card SERIAL-2 (SERIAL-3) fell off; machine SERIAL-1 is up"
    assert found["lspci"].rpartition("-")[0] == "Capabilities: [148 v1] Device Serial Number SERIAL"
    assert without_secrets(texts, None)["smi"] == SMI


def test_the_serials_that_are_known_can_be_asked_for() -> None:
    hider = Hider(["A1234"])
    hider.note("serial: B5678901")
    assert hider.serials() == ["A1234", "B5678901"]


def test_a_record_is_one_line() -> None:
    assert masked_line(f"a\n  b password={S}") == f"a b password={MASK}"
