"""A Spark pipeline: reads orders from a topic and writes hourly totals to a topic and to files.

Run the whole pipeline on an embedded broker::

    python -m examples.spark_pipeline [--plot totals.png]

It runs the job three times: the first run is stopped, the second is killed, and the third runs to the end.
Run its parts on your own cluster, from the directory that contains ``examples``::

    python -m examples.spark_pipeline.produce NAMESRV           # send a day of orders
    python -m examples.spark_pipeline.job NAMESRV DIRECTORY     # run until Ctrl-C, or with --drain to the end
    python -m examples.spark_pipeline.verify NAMESRV DIRECTORY --plot totals.png

DIRECTORY holds the checkpoints and files. A restarted job continues from its checkpoints. The pipeline needs
``pip install "./rocketmq-py[spark]"`` and Java 17 or newer. The plot needs matplotlib.
"""
