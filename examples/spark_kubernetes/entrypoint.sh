#!/bin/bash
# Starts the driver or an executor, as Spark on Kubernetes asks for them. Other commands run unchanged.
set -e

case "$1" in
driver) # and the arguments of spark-submit
  shift
  set -- spark-submit --deploy-mode client --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" "$@"
  ;;
executor) # which environment variables describe
  java_options=()
  for ((number = 0; ; number++)); do
    name="SPARK_JAVA_OPT_$number"
    [[ -v $name ]] || break
    java_options+=("${!name}")
  done
  set -- java "${java_options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "${SPARK_CONF_DIR:-$SPARK_HOME/conf}:${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}$SPARK_HOME/jars/*" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" \
    --app-id "$SPARK_APPLICATION_ID" \
    --executor-id "$SPARK_EXECUTOR_ID" \
    --cores "$SPARK_EXECUTOR_CORES" \
    --hostname "$SPARK_EXECUTOR_POD_IP" \
    --podName "$SPARK_EXECUTOR_POD_NAME" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID"
  ;;
esac
# Java as the first process would not reap Python processes whose parent has ended.
exec tini -s -- "$@"
