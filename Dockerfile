# One image for every part of Tideline: the worker, Airflow's components and Spark.
FROM python:3.11-slim-bookworm@sha256:0bee7276f83efd4a1ee05bbbf4281d95ed28e079220a9457f25a93e3f1e3c31b AS tideline

# procps: spark-submit looks for its children with ps. tini: reaps what they leave.
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 tideline \
    && install -d -o tideline /var/lib/tideline /var/lib/airflow /var/lib/airflow-users \
        /opt/tideline/cache

WORKDIR /opt/tideline
COPY requirements requirements
# By hash, and first what builds the others: nothing is fetched while something is built.
RUN pip install --no-cache-dir --require-hashes --requirement requirements/build.txt \
    && pip install --no-cache-dir --require-hashes --no-deps --no-build-isolation \
        --requirement requirements/image.txt
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY tideline tideline
COPY capture capture
COPY publish publish
COPY spark_jobs spark_jobs
COPY console console
COPY dags dags
COPY plugins plugins
RUN pip install --no-cache-dir --no-deps --no-build-isolation . ./plugins

USER tideline
ENV TIDELINE_CACHE=/opt/tideline/cache \
    TIDELINE_CONFIG=/etc/tideline/tideline.toml \
    AIRFLOW_HOME=/var/lib/airflow \
    LC_ALL=C.UTF-8 \
    PYTHONUNBUFFERED=1
RUN python -c 'from tideline.warehouse.job_jars import every_jar; every_jar()' \
    && python -c 'from tideline_spark.class_archive import make_archive; make_archive()'

# Lists what the image holds. The program that does is no part of it.
FROM tideline AS listed
COPY devtools/__init__.py devtools/
COPY devtools/supply devtools/supply
RUN python -m devtools.supply.sbom --system /home/tideline/image.cdx.json

FROM tideline
COPY --from=listed /home/tideline/image.cdx.json ./
ENTRYPOINT ["tini", "--"]
