// What both forms have: values that are kept between visits, sliders that show their value, a run that can be stopped.

// Fills a form from storage and keeps it there.
export function keep(form, name) {
  const stored = JSON.parse(localStorage.getItem(name) ?? "{}");
  for (const field of form.elements) {
    if (!field.name || field.type === "submit" || field.type === "button") continue;
    if (field.name in stored) {
      if (field.type === "checkbox") field.checked = stored[field.name];
      else if (field.tagName !== "SELECT" || [...field.options].some((each) => each.value === stored[field.name]))
        field.value = stored[field.name];
    }
  }
  const show = () => {
    for (const field of form.querySelectorAll("input[type=range]"))
      field.parentElement.querySelector(".shown").textContent = Number(field.value).toFixed(2);
    localStorage.setItem(name, JSON.stringify(values(form)));
  };
  form.addEventListener("input", show);
  show();
  return show;
}

export function values(form) {
  const fields = [...form.elements].filter((each) => each.name && !["submit", "button"].includes(each.type));
  return Object.fromEntries(fields.map((each) => [each.name, each.type === "checkbox" ? each.checked : each.value]));
}

export function options(select, names) {
  select.append(...names.map((name) => new Option(name)));
}

// The seed of the next run: a new one unless the form keeps it, or this is the first.
export function takeSeed(form, used) {
  const field = form.elements.seed;
  if (used && !form.elements.keep.checked && Number(field.value) === used.seed) {
    field.value = Math.floor(Math.random() * 2 ** 31);
    form.dispatchEvent(new Event("input"));
  }
  return Number(field.value);
}

// Runs work(signal) while the form's buttons show that it does; errors go to `place`.
export class Runs {
  constructor(form, place) {
    Object.assign(this, { form, place });
    form.elements.stop.addEventListener("click", () => this.controller?.abort());
  }

  async run(work) {
    const { go, stop } = this.form.elements;
    this.controller = new AbortController();
    this.place.hidden = true;
    [go.disabled, stop.disabled] = [true, false];
    try {
      await work(this.controller.signal);
    } catch (error) {
      if (error.name !== "AbortError") {
        this.place.textContent = error.message;
        this.place.hidden = false;
      }
    } finally {
      this.controller.abort();
      [go.disabled, stop.disabled] = [false, true];
    }
  }
}

// Writes figures into a list of them.
export function figures(list, content) {
  for (const [name, text] of Object.entries(content)) list.querySelector(`[data-of=${name}]`).textContent = text;
  list.hidden = false;
}
