"""Airflow DAGs that send a message and wait for one, and that each message starts.

    pip install "./rocketmq-py[airflow]"
    export AIRFLOW_CONN_ROCKETMQ_DEFAULT='{"conn_type": "rocketmq", "host": "127.0.0.1:9876"}'
    cp examples/airflow_dag.py $AIRFLOW_HOME/dags/
    airflow dags test send_and_wait

Needs brokers of 5.x. ``bill_each_order`` needs a scheduler and a triggerer, as in ``airflow standalone``.
"""

from __future__ import annotations

from typing import Any

from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger
from airflow.sdk import DAG, Asset, AssetWatcher, task

from rocketmq_py.integrations.airflow.operators import RocketMQSendOperator
from rocketmq_py.integrations.airflow.sensors import RocketMQMessageSensor


@task  # type: ignore[untyped-decorator]  # Airflow is in an environment of its own
def bill(message: dict[str, Any]) -> str:
    """Print and return the body of a message."""
    print("billed:", message["body"])
    return str(message["body"])


with DAG("send_and_wait", schedule=None):
    send = RocketMQSendOperator(
        task_id="send", topic="Orders", bodies=["order 7"], tags="placed", keys="{{ run_id }}"
    )
    wait = RocketMQMessageSensor(
        task_id="wait", topic="Orders", group="airflow", tags="placed", deferrable=True, timeout=60
    )
    send >> wait
    bill(wait.output)

trigger = MessageQueueTrigger(scheme="rocketmq", topic="Orders", group="airflow-watcher")
orders = Asset("orders", watchers=[AssetWatcher(name="orders", trigger=trigger)])

with DAG("bill_each_order", schedule=[orders], is_paused_upon_creation=False):

    @task  # type: ignore[untyped-decorator]
    def bill_all(triggering_asset_events: Any = None) -> list[str]:
        """Return the bodies of the messages that started the run."""
        events = triggering_asset_events[orders]
        return [event.extra["payload"]["body"] for event in events]

    bill_all()
