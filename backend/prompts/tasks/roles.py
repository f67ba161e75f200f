"""Who an agent is and what it is told to do, as many people would word it: solvers, and readers of others' work."""

from __future__ import annotations

from backend.prompts.tasks.words import Draw, start_sentence

# Each line is one way; alternatives inside multiply. The first word of a role decides nothing: what it asks for does.
WHO = {
    "solver": (
        "You are a (math|maths|mathematics) (solver|expert|teacher|student|tutor|whiz|professor)",
        "You are a (careful|patient|clever|good|bright|friendly) (student|pupil|helper|assistant|worker|thinker)",
        "You are (very |)good at (math|maths|numbers|sums|arithmetic|word problems)",
        "You (solve|answer|love) (word problems|math problems|questions|riddles)",
        "As a (math|maths) (expert|teacher), you help (children|people|us)",
        "Act as a (calculator|math expert|teacher|tutor)",
        "(Hi|Hello|Dear agent|Hey)",
        "Your name is Solver",
        "You work (alone|first)",
        "You are Agent 1",
        "You are an (accountant|engineer|assistant)",
        "You are the first one to look at this",
        "Imagine you are a (teacher|student|clerk)",
        "You are (smart|helpful|precise)",
    ),
    "inspector": (
        "You are (an|the) (inspector|auditor|examiner) [of (a|the) team]",
        "You are a (checker|reviewer|controller|supervisor|proofreader|strict teacher|critic) [in a team]",
        "You (check|inspect|review|verify) the work of (others|the other agents|your team)",
        "As an inspector you trust nobody",
        "Your job is to (check|verify|review) the others",
        "You are a (tester|verifier|corrector|quality manager)",
        "You are a (teacher|tutor) who (marks|checks|corrects) homework",
        "Act as a (reviewer|checker|critic)",
        "You are the one who finds (errors|mistakes)",
        "You are an (experienced|careful|honest) (inspector|checker)",
        "You look for (mistakes|errors|slips)",
        "Be the (inspector|checker) of this (team|group)",
    ),
    "analyst": (
        "You are (a mathematical|an|the|a careful) analyst [in a team]",
        "You are a (programming expert|programmer|developer|software engineer) [in a team]",
        "You are a (thinker|researcher|scientist|helper|team member|colleague|second solver)",
        "You (read|use|see) (the hints|what the others found|the work of the others)",
        "As an analyst you (compare|read|use) what others wrote",
        "You work (with others|in a team|together with other agents)",
        "Act as a (second opinion|fresh pair of eyes)",
        "You are a (math|maths) (expert|student|teacher) in a team",
        "You are the (last|next|second|third) one to solve this",
        "You are a (consultant|planner|strategist|data analyst)",
        "Your job is to solve the task after the others",
        "You think (for yourself|step by step)",
    ),
}  # fmt: skip
WHAT = {
    "solver": (
        "Solve the (problem|task|question|exercise) [step by step|carefully|now]",
        "Work out the (answer|problem|result) [step by step]",
        "(Find|Give|Compute|Calculate|Tell me) the (answer|result|number) [step by step]",
        "Write down (every|each) step",
        "Show (your work|each step|all steps|how you get there)",
        "(Think|Calculate|Go) step by step",
        "Answer the question [step by step|with all steps]",
        "(Do|Write) the (sum|sums|calculation|calculations)",
        "Say what the (answer|result) is",
        "Explain your (steps|solution) in numbers",
        "(Please|Kindly) solve this [for me]",
        "(Read|Take) the (problem|task) and solve it",
        "Solve it",
        "Help with this (problem|task)",
        "What is the (answer|result)",
    ),
    "inspector": (
        "(Check|Inspect|Verify|Review|Examine) the (work|answers|results|solutions) of the (other agents|others|agents before you) [and (give your own solution|solve the task yourself)]",
        "(Say|Tell us|Decide|Write) who is right and who is wrong",
        "(Look for|Find|Point out) (mistakes|errors|the errors) of the (other agents|others) [, then solve the task yourself]",
        "Mark (each|every) (agent|answer|solution) as right or wrong",
        "Do not trust the (others|other agents), check (each|every one) of them",
        "Go through every step again and check the other agents",
        "Solve the (task|problem) and (say|tell) who is right",
        "Which of the (agents|answers) are right, which are wrong",
        "Tell right from wrong [for each agent]",
        "(Judge|Grade|Rate) (each|every) agent: right or wrong",
        "Verify every (agent|result|answer) before you and give your own",
        "Correct the others' work",
        "Is each agent right or wrong",
    ),
    "analyst": (
        "(Read|Use|Compare|Consider|Look at) the (hints|work|answers|outputs) of the (other agents|others) [and (give your own solution|solve the task step by step)]",
        "Use what the others found and (give your own solution|solve the task)",
        "Work like a program, line by line, and give your own solution",
        "Solve the task [line by line] [, like a program]",
        "Give (your own|another|a fresh) solution",
        "(Read|See) what the others (found|wrote|did) and solve the (task|problem) yourself",
        "Do the calculation yourself",
        "Solve the (task|problem) (again|once more|yourself|on your own)",
        "What is your own (answer|solution|result)",
        "Write your own (steps|solution)",
        "Take the hints and solve it",
        "Compare the other agents and solve the task step by step",
        "Write the answer you find [yourself]",
    ),
}  # fmt: skip
HOW = (
    "Be (brief|short|precise|careful|exact|quick)",
    "Take your time",
    "Use plain numbers",
    "Write one line",
    "Your work will be read by others",
    "Do not skip (a step|steps)",
    "Stay with the facts",
    "Keep it (short|simple)",
    "Today is (Monday|Tuesday|Friday|a holiday)",
    "You work in a team",
    "(Thank you|Thanks)",
    "Good luck",
    "Do not guess",
    "This is important",
    "No long words",
    "Answer in English",
    "Mind the numbers",
    "Think before you write",
)


def role_text(d: Draw, kind: str) -> str:
    """An instruction for a *solver*, *inspector* or *analyst*: who, what and how in any order, some of it missing.

    What an inspector is told stays in, since nothing else says that it has to give verdicts.
    """
    parts = []
    told = [d.one(WHAT[kind])]
    if d.chance(0.25):
        told.append(d.one(WHAT[kind]))
    if d.chance(0.7):
        parts.append(d.one(WHO[kind]))
    parts += told
    if d.chance(0.15):
        d.rng.shuffle(parts)
    while d.chance(0.25):
        parts.insert(d.rng.randint(0, len(parts)), d.one(HOW))
    mark = d.rng.choice((". ", ". ", ". ", ".\n", ", ", "! ", " - ", "; "))
    text = mark.join(p if mark[0] in ".!" or not i else p[:1].lower() + p[1:] for i, p in enumerate(parts))
    text = start_sentence(text) + d.rng.choice((".", ".", ".", "", "!", ":"))
    return text.lower() if d.chance(0.05) else text


BEFORE_TASK = (
    "\nThe task is: ", "\nTask: ", "\nThe problem is: ", "\nHere is the task: ", "\nProblem: ", "\nQuestion: ", "\n", "\n\n",
    "\nQ: ", " Task: ", "\nThe question is: ", "\nSolve this: ", "\nThis is the task: ", " ", "\nThe task:\n", "\nTASK: ",
    "\nUser: ", "\nQuestion:\n", "\nThe user asks: ", "\nThe problem: ", "\nThis is what the user asks: ", "\ntask: ",
)  # fmt: skip
AGENT_HEADERS = (
    "\nAgent {i}, role is {t}, output is:\n", "\nAgent {i} ({t}):\n", "\nAgent {i}:\n", "\nAgent {i}: ", "\nAnswer of agent {i}:\n",
    "\n{t}:\n", "\n{t} says: ", "\nAgent {i} says: ", "\nOutput of agent {i}: ", "\nAgent {i} wrote:\n", "\n{t} wrote: ",
    "\nSolution {i}: ", "\nSolution of {t}:\n", "\nAgent {i}, {t}: ", "\n[Agent {i}]\n", "\nFrom agent {i}: ", "\nHint {i}: ",
    "\n\nAgent {i}, role is {t}, output is:\n", "\nAgent {i} - {t}:\n", "\nNumber {i}: ", "\n# Agent {i}\n", "\nagent {i}: ",
)  # fmt: skip
