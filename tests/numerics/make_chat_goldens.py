"""Makes tests/fixtures/chat: two tokenizers for chat templates, and what transformers' apply_chat_template makes of
conversations, with the tokens that the loss counts.

The Jinja templates are those that the models named beside them bring (parts about tools and images left out). The mask
comes from prefixes, as in TRL: what a message adds to the tokens of those before it and the generation prompt, up to and
with the last special token. Run after make_tokenizer_goldens.py with a Python that has transformers, jinja2,
sentencepiece and protobuf:
    python tests/numerics/make_chat_goldens.py
"""

import json
import pathlib
import sys

import tokenizers
import transformers

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "fixtures"
SPECIALS = ["<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<start_of_turn>",
            "<end_of_turn>"]

CHATML = (  # teknium/OpenHermes-2.5-Mistral-7B
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
QWEN25 = (  # Qwen/Qwen2.5-7B-Instruct
    "{%- if messages[0]['role'] == 'system' %}{{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}"
    "{%- else %}{{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' }}"
    "{%- endif %}{%- for message in messages %}{%- if (message.role == 'user') or (message.role == 'system' and not "
    "loop.first) or (message.role == 'assistant' and not message.tool_calls) %}{{- '<|im_start|>' + message.role + '\\n' + "
    "message.content + '<|im_end|>' + '\\n' }}{%- endif %}{%- endfor %}{%- if add_generation_prompt %}"
    "{{- '<|im_start|>assistant\\n' }}{%- endif %}")
LLAMA3 = (  # meta-llama/Meta-Llama-3-8B-Instruct
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + "
    "message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
    "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}")
LLAMA2 = (  # meta-llama/Llama-2-7b-chat-hf
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = "
    "messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}"
    "{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + "
    "'\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}"
    "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}")
MISTRAL = (  # mistralai/Mistral-7B-Instruct-v0.2
    "{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content'] %}{%- set loop_messages = "
    "messages[1:] %}{%- else %}{%- set loop_messages = messages %}{%- endif %}{{- bos_token }}{%- for message in "
    "loop_messages %}{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{- raise_exception('After the optional "
    "system message, conversation roles must alternate user/assistant/user/assistant/...') }}{%- endif %}"
    "{%- if message['role'] == 'user' %}{%- if loop.first and system_message is defined %}{{- ' [INST] ' + system_message + "
    "'\\n\\n' + message['content'] + ' [/INST]' }}{%- else %}{{- ' [INST] ' + message['content'] + ' [/INST]' }}{%- endif %}"
    "{%- elif message['role'] == 'assistant' %}{{- ' ' + message['content'] + eos_token}}{%- endif %}{%- endfor %}")
GEMMA = (  # google/gemma-3-4b-it
    "{{ bos_token }}{%- if messages[0]['role'] == 'system' -%}{%- set first_user_prefix = messages[0]['content'] + '\\n\\n' "
    "-%}{%- set loop_messages = messages[1:] -%}{%- else -%}{%- set first_user_prefix = '' -%}{%- set loop_messages = "
    "messages -%}{%- endif -%}{%- for message in loop_messages -%}{%- if (message['role'] == 'user') != (loop.index0 % 2 == "
    "0) -%}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{%- endif -%}"
    "{%- if (message['role'] == 'assistant') -%}{%- set role = 'model' -%}{%- else -%}{%- set role = message['role'] -%}"
    "{%- endif -%}{{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else '') }}"
    "{{ message['content'] | trim }}{{ '<end_of_turn>\\n' }}{%- endfor -%}{%- if add_generation_prompt -%}"
    "{{'<start_of_turn>model\\n'}}{%- endif -%}")
ZEPHYR = (  # HuggingFaceH4/zephyr-7b-beta
    "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\\n' + message['content'] + eos_token }}\n"
    "{% elif message['role'] == 'system' %}\n{{ '<|system|>\\n' + message['content'] + eos_token }}\n"
    "{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\\n'  + message['content'] + eos_token }}\n{% endif %}\n"
    "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}")

# The template, and the tokenizers in tests/fixtures that it is tried with.
TEMPLATES = {
    "chatml": (CHATML, ["chat/tokenizer"]),
    "qwen2.5": (QWEN25, ["chat/tokenizer"]),
    "llama3": (LLAMA3, ["chat/tokenizer"]),
    "llama2": (LLAMA2, ["tokenizers/small", "chat/legacy", "chat/tokenizer"]),
    "mistral": (MISTRAL, ["tokenizers/small", "chat/tokenizer"]),
    "gemma": (GEMMA, ["chat/tokenizer"]),
    "zephyr": (ZEPHYR, ["tokenizers/small", "chat/tokenizer"]),
}


def say(*contents: str) -> list[dict]:
    """A conversation: the user and the assistant in turns; a first content that begins with "system:" is the system's."""
    messages = []
    if contents[0].startswith("system:"):
        messages.append({"role": "system", "content": contents[0].removeprefix("system:")})
        contents = contents[1:]
    return messages + [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(contents)]


CONVERSATIONS = [
    say("A che ora parte il treno?", "Alle sette."),
    say("system:Rispondi in breve.", "A che ora parte il treno?", "Alle sette.", "E il vlak?", "V sedm hodin, 1999."),
    say("  Příliš\n", "\n\n  žlutý kůň \t\n", "\n\nPerché?\n", " \u00a0così\u3000", "...", "!"),
    say("system: Sei gentile.\n", "città", "123 456\n", "", "<d> {{content}} \\n {% x %}"),
    say("system:", "a", ""),
    say("Il treno", "parte", "e non torna"),
]


def make_tokenizer(directory: pathlib.Path) -> None:
    """The one of tests/fixtures/tokenizers/llama3 with more special tokens."""
    tokenizer = tokenizers.Tokenizer.from_file(str(FIXTURES / "tokenizers" / "llama3" / "tokenizer.json"))
    tokenizer.add_special_tokens(SPECIALS)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "tokenizer.json").write_text(tokenizer.to_str() + "\n")
    config = {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>", "tokenizer_class": "PreTrainedTokenizerFast"}
    (directory / "tokenizer_config.json").write_text(json.dumps(config) + "\n")


def make_legacy(directory: pathlib.Path) -> None:
    """tests/fixtures/tokenizers/small, with a space before each text behind a special token."""
    small = FIXTURES / "tokenizers" / "small"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "tokenizer.model").write_bytes((small / "tokenizer.model").read_bytes())
    config = json.loads((small / "tokenizer_config.json").read_text()) | {"legacy": True}
    (directory / "tokenizer_config.json").write_text(json.dumps(config) + "\n")


def labels_of(tokenizer, messages: list[dict], ids: list[int], last_only: bool) -> list[int]:
    def encode(messages: list[dict], prompt: bool) -> list[int]:
        return tokenizer.apply_chat_template(messages, add_generation_prompt=prompt, return_dict=False)

    labels = [-100] * len(ids)
    answers = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    for index in answers[-1:] if last_only else answers:
        before, through = encode(messages[:index], True), encode(messages[: index + 1], False)
        begin = next((i for i, (a, b) in enumerate(zip(before, through)) if a != b), len(before))
        end = 1 + max(i for i, token in enumerate(through) if token in tokenizer.all_special_ids or
                      tokenizer.convert_ids_to_tokens(token) in SPECIALS)
        assert through[:end] == ids[:end], "a later message changes the tokens of an earlier one"
        labels[begin:end] = ids[begin:end]
    return labels


def main() -> None:
    directory = FIXTURES / "chat"
    make_tokenizer(directory / "tokenizer")
    make_legacy(directory / "legacy")
    cases = []
    for name, (template, directories) in TEMPLATES.items():
        for where in directories:
            tokenizer = transformers.AutoTokenizer.from_pretrained(FIXTURES / where)
            tokenizer.chat_template = template
            for messages in CONVERSATIONS:
                text = tokenizer.apply_chat_template(messages, tokenize=False)
                ids = tokenizer.apply_chat_template(messages, return_dict=False)
                cases.append({"template": name, "tokenizer": where, "messages": messages, "text": text, "ids": ids,
                              "answer": labels_of(tokenizer, messages, ids, False),
                              "last_answer": labels_of(tokenizer, messages, ids, True)})
    lines = ",\n".join(json.dumps(case, separators=(",", ":"), ensure_ascii=False) for case in cases)
    made_by = f"transformers {transformers.__version__}, tokenizers {tokenizers.__version__}"
    jinja = json.dumps({name: template for name, (template, _) in TEMPLATES.items()}, indent=1)
    (directory / "goldens.json").write_text(f'{{"made_by": "{made_by}",\n"jinja": {jinja},\n"cases": [\n{lines}\n]}}\n')
    print(f"{len(cases)} cases", file=sys.stderr)


if __name__ == "__main__":
    main()
