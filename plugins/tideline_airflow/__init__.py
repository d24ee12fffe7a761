"""Tideline in Airflow: hook, operators, trigger and assets. Airflow decides, others work.

Importing any module here is cheap; what reads the chain or Delta is imported when a task runs.
"""
