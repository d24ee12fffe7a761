"""The settings of publishers: what cannot be is refused, by name."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tideline.settings import PublishSettings
from tideline.settings.avro import AvroSettings

KAFKA = {"servers": ["127.0.0.1:9092", "localhost:9092", "[::1]:9092"]}


def made(**settings: Any) -> PublishSettings:
    return PublishSettings.model_validate(settings)


@pytest.mark.parametrize("protocol", ["plaintext", "sasl_plaintext"])
@pytest.mark.parametrize("server", ["broker-1:9092", "10.0.0.1:9092", "[2001:db8::1]:9092"])
def test_kafka_without_tls_is_for_this_machine_only(protocol: str, server: str) -> None:
    made(output="kafka", kafka={**KAFKA, "security_protocol": protocol})
    wanted = f'{server}, which is not .*"{protocol.replace("plaintext", "ssl")}"'
    away = {"servers": [*KAFKA["servers"], server], "security_protocol": protocol}
    with pytest.raises(ValidationError, match=wanted.replace("[", r"\[")):
        made(output="kafka", kafka=away)
    made(output="kafka", kafka={**away, "security_protocol": "ssl"})


def test_a_worker_that_waits_for_kafka_is_not_taken_over() -> None:
    with pytest.raises(ValidationError, match="heartbeat_s must be at most half"):
        made(output="kafka", kafka=KAFKA, heartbeat_s=8, takeover_after_s=15)
    made(output="kafka", kafka=KAFKA, heartbeat_s=7.5, takeover_after_s=15)


def test_avro_needs_its_registry_and_an_output_that_holds_it() -> None:
    with pytest.raises(ValidationError, match="names no schema registry"):
        made(output="kafka", format="avro", kafka=KAFKA)
    avro = {"registry": "https://registry"}
    with pytest.raises(ValidationError, match="which the output redis cannot hold"):
        made(output="redis", format="avro", avro=avro)
    with pytest.raises(ValidationError, match="while it waits for the schema registry"):
        made(output="kafka", format="avro", kafka=KAFKA, avro={**avro, "timeout_s": 5})
    made(output="kafka", format="avro", kafka=KAFKA, avro=avro)
    made(output="null", format="avro")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://registry:8081", "must be https://, except"),
        ("https://u:canary@registry", "must not hold credentials"),
        ("registry:8081", "must be https://host/path"),
        ("https://registry/?a=canary", "nothing behind the path"),
    ],
)
def test_addresses_of_registries_that_are_refused(url: str, reason: str) -> None:
    with pytest.raises(ValidationError, match=reason) as error:
        AvroSettings(registry=url)
    assert "canary" not in str(error.value)
    assert AvroSettings(registry="http://127.0.0.1:8081/").registry == "http://127.0.0.1:8081"
