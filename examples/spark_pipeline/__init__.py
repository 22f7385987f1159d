"""Orders come in on a topic; a Spark job turns them into totals by the hour, on a topic and in files.

    python -m examples.spark_pipeline [--plot totals.png]     # all of it, on an embedded broker of its own

That starts the job three times: it is stopped, it is killed, and it comes to its end. Its parts, for a
cluster of your own; all are run from the folder above ``examples``:

    python -m examples.spark_pipeline.produce NAMESRV           # sends a day of orders
    python -m examples.spark_pipeline.job NAMESRV DIRECTORY     # until Ctrl-C; with --drain until all is read
    python -m examples.spark_pipeline.verify NAMESRV DIRECTORY --plot totals.png

DIRECTORY is where the checkpoints and the files go. Start the job as often as you like: it goes on where it
was. It needs ``pip install rocketmq-py[spark]`` and a Java 17 or newer; the picture needs matplotlib.
"""
