"""Thoughts as language models write them about public data sets, without their final answers."""

import pytest

from verl.classmate.strip import answer_start

CLIPS = "Natalia sold clips to 48 of her friends in April, and then half as many in May. How many altogether?"
GASES = "Which gas do plants take in?\nA. Oxygen\nB. Nitrogen\nC. Carbon dioxide\nD. Helium"


@pytest.mark.parametrize(
    ("question", "thought", "answer", "shown"),
    [
        (
            CLIPS,
            "Natalia sold 48/2 = <<48/2=24>>24 clips in May.\nAltogether 48+24 = <<48+24=72>>72 clips.\n#### 72",
            "#### 72",
            "Natalia sold 48/2 = <<48/2=24>>24 clips in May.",
        ),
        (CLIPS, "In May she sold 24. So, 48+24=72. Thus the answer is 72.", "72", "In May she sold 24."),
        (
            CLIPS,
            "May: half of 48 is 24. Altogether, that would be 72 clips in 2 months.",
            "72",
            "May: half of 48 is 24. Altogether,",
        ),
        (
            CLIPS,
            "We need clips in April and May.\nApril: 48\nMay: 24\n\n**Final Answer: 72 clips**",
            "72",
            "We need clips in April and May.\nApril: 48\nMay: 24",
        ),
        ("What is 3 times 4?", "So, 3*4=12. Thus the answer is 12.", "12", "So, 3*4"),
        (
            "What is 3 times 4?",
            "3*4 = 13? Wait, 13? No, 12. Let me recount: 4+4+4 is 12.",
            "12",
            "3*4 = 13? Wait, 13? No,",
        ),
        ("What is 9 + 4?", "9 + 4... it should be 13. Hmm, 9+1 = 10 and 3 more: 13.", "13", "9 + 4..."),
        (
            "Solve x^2=4 for x>0.",
            "We factor $(x-2)(x+2)=0$, so the roots are $\\pm$ ... The positive one is \\boxed{2}.",
            "2",
            "We factor $(x-2)(x+2)=0$, so the roots are $\\pm$ ...",
        ),
        (
            "How many pages are left?",
            "He read 120 of 200 pages.\n200 - 120 = 80 pages are left.",
            "80",
            "He read 120 of 200 pages.",
        ),
        (
            "Is 91 prime?",
            "91 = 7 * 13, which are both larger than 1. So no, it is not prime.",
            "no",
            "91 = 7 * 13, which are both larger than 1.",
        ),
        (
            "Is 91 prime?",
            "There is no small factor but 7. 7*13 = 91. The answer is No.",
            "No",
            "There is no small factor but 7. 7*13 = 91.",
        ),
        (
            "True or False: 7 is prime.",
            "7 has no divisors between 1 and 7. Therefore, the statement is True.",
            "True",
            "7 has no divisors between 1 and 7.",
        ),
        (
            "What does print(3 > 2) show?",
            "3 is more than 2, so the comparison holds. It prints True.",
            "True",
            "3 is more than 2, so the comparison holds.",
        ),
        (
            "When was it signed?",
            "Congress met in Philadelphia. It was signed on July 4, 1776.",
            "July 4, 1776",
            "Congress met in Philadelphia.",
        ),
        (
            "What is the date?",
            "Two weeks after 03/01/2024. That gives 03/15/2024.",
            "03/15/2024",
            "Two weeks after 03/01/2024.",
        ),
        (
            "What does he pay?",
            "Each costs $617.25, and he takes two. Total cost: $1,234.50.",
            "$1,234.50",
            "Each costs $617.25, and he takes two.",
        ),
        (
            "What does he pay?",
            "Each costs $617.25, and he takes two. He pays 1234.5 dollars in all.",
            "$1,234.50",
            "Each costs $617.25, and he takes two.",
        ),
        ("What share is red?", "5 of 20 are red.\n5/20 = 0.25 = 25%.", "25%", "5 of 20 are red."),
        (
            "What is the temperature?",
            "It was 5 degrees and fell by 12. 5 - 12 = -7.",
            "-7",
            "It was 5 degrees and fell by 12.",
        ),
        (
            "What is the temperature?",
            "It fell by 12 from 5. So it's \N{MINUS SIGN}7°C now.",
            "-7",
            "It fell by 12 from 5.",
        ),
        (
            GASES,
            "Plants need a gas for photosynthesis. Oxygen is released. Therefore, the correct option is (C).",
            "C",
            "Plants need a gas for photosynthesis. Oxygen is released.",
        ),
        (
            GASES,
            "A. Oxygen: released.\nB. Nitrogen: in soil.\nC. Carbon dioxide: taken in.\nD. Helium.\nI would go with C.",
            "C",
            "A. Oxygen: released.\nB. Nitrogen: in soil.\nC. Carbon dioxide: taken in.\nD. Helium.",
        ),
        (
            GASES,
            "Photosynthesis uses carbon dioxide, which is option C. Others do not fit.",
            "C",
            "Photosynthesis uses carbon dioxide,",
        ),
        (GASES, "Answer: C", "C", ""),
        ("What is printed?", "The list is doubled. It prints [2, 4, 6].", "[2, 4, 6]", "The list is doubled."),
        (
            "What is printed?",
            "x starts at 1 and doubles 3 times: 2, 4, 8. Output: `8`",
            "8",
            "x starts at 1 and doubles 3 times: 2, 4,",
        ),
        (
            "Who is the tallest of Ann, Bob and Carl?",
            "Ann is shorter than Carl. Carl is shorter than Bob. So Bob is the tallest.",
            "Bob",
            "Ann is shorter than Carl.",
        ),
        (
            "Who wrote it?",
            "It is a tragedy from about 1600. William Shakespeare wrote it.",
            "William Shakespeare",
            "It is a tragedy from about 1600.",
        ),
        (
            "What is 47 + 38?",
            "What is 47 + 38? Let me add 47 and 38. 40+30=70. 7+8=15. 70+15=85.",
            "85",
            "What is 47 + 38? Let me add 47 and 38. 40+30=70. 7+8=15.",
        ),
        ("What is 7 + 3 - 3?", "7 + 3 is 10.\n10 - 3 is 7.\nSo the answer is 7.", "7", "7 + 3 is 10."),
        (
            "Find the probability.",
            "There are 6 outcomes and 3 are odd. The probability is 3/6 = 1/2.",
            "\\frac{1}{2}",
            "There are 6 outcomes and 3 are odd.",
        ),
        (
            "Find the length.",
            "By Pythagoras c^2 = 9 + 9 = 18. Then c = \\sqrt{18} = 3\\sqrt{2}.",
            "3\\sqrt{2}",
            "By Pythagoras c^2 = 9 + 9 = 18.",
        ),
        ("Find the area.", "The radius is 3. The area is π * 3^2 = 9π.", "9\\pi", "The radius is 3."),
        (
            "Find the interval.",
            "We need x > 2 and x <= 5. In interval notation: (2,5].",
            "(2, 5]",
            "We need x > 2 and x <= 5.",
        ),
        (
            "Factor it.",
            "We look for two numbers with sum 5 and product 6. So it is (x + 2)(x+3).",
            "(x+2)(x+3)",
            "We look for two numbers with sum 5 and product 6.",
        ),
        (
            "How long?",
            "He works 8 hours a day for 5 days. 8 \u00d7 5 = 40, minus 0 breaks. Answer—40 hours.",
            "40 hours",
            "He works 8 hours a day for 5 days.",
        ),
        ("How many?", "<b>Sum</b>: 20 + 22.\n<answer>42</answer>", "42", "<b>Sum</b>: 20 + 22."),
        ("How many?", 'Sum: 20 + 22. {"answer": 42, "steps": 1}', "42", "Sum: 20 + 22."),
        ("How many?", "20 + 22 → 42 ✓", "42", "20 + 22"),
        ("How many?", "Step 1: 20 + 22 = 42.\nStep 2: 42 / 21 = 2.\nTherefore, 2.", "2", "Step 1: 20 + 22 = 42."),
        (
            "How many?",
            "1) We add 20 and 20.\n2) We add 2 more, which gives 42!\n3) Done (3 steps).",
            "42",
            "1) We add 20 and 20.\n2) We add 2 more,",
        ),
        ("How many?", "The answer: forty-two, that is 42; 20 and 22 were added.", "42", "The answer: forty-two,"),
        ("How many?", "I would say 42ish, since 20+22.", "42", ""),
        ("How far is it in 3 hours?", "60 km in 1 hour. 60 x 3 = 180km", "180 km", "60 km in 1 hour."),
        (
            "What time?",
            "It starts at 9:15 and takes 75 minutes. So it ends at 10:30 am.",
            "10:30",
            "It starts at 9:15 and takes 75 minutes.",
        ),
        ("How many?", "2 million times 1.5. That is 3,000,000.", "3000000", "2 million times 1.5."),
    ],
)
def test_what_is_shown_of_a_usual_thought(question: str, thought: str, answer: str, shown: str) -> None:
    start = answer_start(thought, answer, question)
    assert (thought if start is None else thought[:start].rstrip()) == shown
    assert answer_start(shown, answer, question) is None
