"""The contract (plan, options, hooks), the registry, and one file or folder per reuse method.

A method decides and never touches the model: it returns a plan, plain data that says of every span where
its KV comes from. What distinguishes a method is an attribute or a hook of the contract, never its name.

Others use, by module:

    base: Method, PromptView, Arrived, Prefilled, Finished
    plan: Plan, Step, Reuse, Compute, Link, Selection, Term
    options: Options, Profile, option
    registry: METHODS, method_names, method_class, make_options, option_fields, parse_methods
    dense: dense_plan
"""
