# One image for every part of Tideline: the worker, Airflow's components and Spark.
FROM python:3.11-slim-bookworm

# procps: spark-submit looks for its children with ps. tini: reaps what they leave.
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 tideline \
    && install -d -o tideline /var/lib/tideline /var/lib/airflow /var/lib/airflow-users \
        /opt/tideline/cache

WORKDIR /opt/tideline
COPY pyproject.toml constraints.txt README.md ./
COPY tideline tideline
COPY capture capture
COPY spark_jobs spark_jobs
COPY console console
COPY benchmarks benchmarks
COPY simulation simulation
COPY dags dags
COPY plugins plugins
RUN pip install --no-cache-dir --constraint constraints.txt '.[capture,spark,planner,airflow]' ./plugins

USER tideline
ENV TIDELINE_CACHE=/opt/tideline/cache \
    TIDELINE_CONFIG=/etc/tideline/tideline.toml \
    AIRFLOW_HOME=/var/lib/airflow \
    PYTHONUNBUFFERED=1
RUN python -c 'from tideline.delta_jars import delta_jars; delta_jars()' \
    && python -c 'from console.services.archive import make_archive; make_archive()'

ENTRYPOINT ["tini", "--"]
