"""The status of brokers 4.9.7 and 5.5.0 from their figures."""

from __future__ import annotations

from rocketmq_py.admin.brokers import BrokerStatus


def test_status_of_a_5_x_replica() -> None:
    status = BrokerStatus._of(
        "broker-a",
        "DefaultCluster",
        1,
        "10.0.0.1:10911",
        {
            "brokerVersionDesc": "V5_5_0",
            "bootTimestamp": "1795373621677",
            "putTps": "12.5 0.4 0.1",
            "getTransferredTps": "3.5 1.0",
            "msgPutTotalTodayNow": "120",
            "msgPutTotalTodayMorning": "20",
            "msgGetTotalTodayNow": "7",
            "msgGetTotalTodayMorning": "7",
            "commitLogDiskRatio": "0.15",
            "sendThreadPoolQueueSize": "4",
            "sendThreadPoolQueueHeadWaitTimeMills": "250",
            "pullThreadPoolQueueSize": "1",
            "pullThreadPoolQueueHeadWaitTimeMills": "2",
        },
    )
    assert (status.version, status.started_ms, status.is_master) == ("5.5.0", 1795373621677, False)
    assert (status.put_rate, status.get_rate, status.put_today, status.get_today) == (12.5, 3.5, 100, 0)
    assert (status.disk_ratio, status.send_queue, status.send_wait_ms) == (0.15, 4, 250)
    assert (status.pull_queue, status.pull_wait_ms) == (1, 2)


def test_status_of_a_4_x_broker_that_has_just_started() -> None:
    details = {"brokerVersionDesc": "V4_9_7", "putTps": "  ", "getTransferedTps": "1.0 ", "putTps2": "x"}
    status = BrokerStatus._of("b", "c", 0, "a:1", {**details, "commitLogDiskRatio": "-1.0"})
    assert (status.version, status.put_rate, status.get_rate) == ("4.9.7", 0.0, 1.0)
    assert (status.started_ms, status.disk_ratio, status.put_today) == (None, None, 0)
