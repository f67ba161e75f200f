"""Candidates put before a judge: prompts, verdicts, orders, batches, cost, gate training.

Agents write candidates once, and a judge reads them in several orders under every method. What it selects
is mapped back to the candidates and compared with what it selects densely.

Others use, by module:

    judge_lab: JudgeLab, JudgeSession
    batch: run_judging
    live: judge, write
    cost: judging_seconds
    gate_training: risk_study
"""
