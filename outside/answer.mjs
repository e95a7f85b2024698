// What a consumer in JavaScript answers, as answer.py does for those in Python.
//
//     await answer(load, note)      writes answers.json of the current folder
//
// `load(folder)` returns { encode, greedy } of one of the folders that make_runs.py wrote. Both may
// return promises. A consumer that does not show ids has no `encode`.

import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

export async function answer(load, note = "") {
    const made = process.env.OUTSIDE_MADE;
    const questions = JSON.parse(readFileSync(join(made, "questions.json"), "utf8"));
    const answers = { note };
    for (const name of readdirSync(made).sort()) {
        const folder = join(made, name);
        if (!existsSync(join(folder, "hf"))) continue;
        answers[name] = {};
        try {
            await ask(await load(folder), questions, answers[name]);
        } catch (error) {
            console.error(name, error);
            answers[name].error = `${error.name}: ${error.message.split("\n")[0]}`;
        }
        writeFileSync("answers.json", JSON.stringify(answers)); // the next one may crash
    }
}

async function ask(model, questions, said) {
    if (model.encode) {
        said.ids = [];
        for (const text of questions.texts) {
            said.ids.push([...(await model.encode(text))].map(Number));
        }
    }
    for (const [length, prompt] of Object.entries(questions.prompts)) {
        const text = questions.prompt_texts[length];
        const tokens = await model.greedy(prompt, questions.new_tokens, text);
        said[length] = { greedy: tokens.map(Number) };
    }
}

export function ggufFile(folder) {
    const refusal = join(folder, "no-gguf.txt");
    if (existsSync(refusal)) throw new Error(readFileSync(refusal, "utf8").trim());
    return join(folder, "model.gguf");
}
