"""A small job on a Spark of its own, for the classes that it loads."""

from siltstone.spark.driver_jvm import DriverJvm
from siltstone.spark.session import DEFAULT_MASTER, connect, start_context

_PLACES = 2


def rehearse(java_options: tuple[str, ...]) -> None:
    """Do once what an engine does: a job with a shuffle, and what tasks send on the way."""
    jvm = DriverJvm(java_options, memory="512m")
    context, mailbox = start_context(DEFAULT_MASTER, {}, gateway=connect(jvm.wait_for_gateway()))
    with mailbox.open_box() as box:
        address = box.address

        def send(number: int) -> None:
            address.send(number)

        rows = context.parallelize(range(_PLACES), _PLACES).map(lambda n: (n, b"block"))
        context.setJobGroup("rehearsal", "rehearsal", interruptOnCancel=True)
        rows.partitionBy(_PLACES, lambda n: n).mapPartitions(list).keys().foreach(send)
    context.stop()
    jvm.close()
