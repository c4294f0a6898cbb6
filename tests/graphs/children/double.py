def run(input):
    return input["number"] * input["factor"]
