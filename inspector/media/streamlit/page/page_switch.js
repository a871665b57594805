// A link to another page opens its bare URL, into which the page then writes what it shows. Both are one entry of
// the browser's history: with two, *Back* would lead to the bare URL, and the page would write it again. So a page
// adds an entry only after an act of the user, and one for each.
let wentBack // tells the server that *Back* or *Forward* has changed the URL of the same page
let presses = 0 // of these buttons
// What *Back* or *Forward* has opened. What the page before sends by itself until the new one has come asks the
// server for the page before, whose run would write its URL over this one. Only the user can leave this page.
let opened // its URL, until the user acts
let waits = false // for the end of its run
let repeats = false // the same event again, for Streamlit alone

// A field sends its text when it loses the focus, and a link that gets it asks for another page at once. Streamlit
// answers both requests as one, without the text. So the link waits until a run for the text has begun.
const LINKS = ["stTopNavLink", "stSidebarNavLink", "stPageLink-NavLink", "stLogoLink"]
  .map((name) => `[data-testid="${name}"]`)
  .join()
const MOST_WAIT_MS = 1000
const FIELDS = ["stTextInput", "stNumberInput", "stTextArea"].map((name) => `[data-testid="${name}"]`).join()
let typed = false // whether a field has text that it has not sent
let unsent = false // whether a run for a text that a field has sent has not begun

function keepTyped() {
  const sends = ({ target }) => {
    if (!typed || !target.closest?.(FIELDS)) return
    typed = false
    unsent = true
  }
  addEventListener("input", ({ target }) => (typed = typed || Boolean(target.closest?.(FIELDS))), true)
  addEventListener("focusout", sends, true)
  addEventListener("keydown", (event) => event.key === "Enter" && sends(event), true)
  const begun = ([{ target }]) => target.dataset.testScriptState === "running" && (unsent = false)
  const state = { attributeFilter: ["data-test-script-state"], subtree: true }
  new MutationObserver(begun).observe(document.body, state)
  const clicked = (event) => {
    const link = event.target.closest?.(LINKS)
    if (!link || !unsent || event.ctrlKey || event.metaKey || event.shiftKey) return
    event.preventDefault()
    event.stopImmediatePropagation()
    const end = performance.now() + MOST_WAIT_MS
    const follow = () => {
      if (unsent && performance.now() < end) return setTimeout(follow, 20)
      unsent = false
      link.click()
    }
    follow()
  }
  addEventListener("click", clicked, true)
}

const fields = ({ searchParams }) => [...searchParams].map(String).sort().join("\n") // in any order

function openAgain() {
  repeats = true
  dispatchEvent(new PopStateEvent("popstate"))
  repeats = false
}

// Called at the end of each run of a page.
function ended({ page, query }) {
  if (page !== location.pathname.split("/").pop()) return setTimeout(openAgain)
  waits = false
  if (opened === location.href) history.replaceState({}, "", location.pathname + (query && `?${query}`))
}

export default function ({ data, setStateValue }) {
  wentBack = () => setStateValue("presses", ++presses)
  if (waits) ended(data)
  if (history.pushState.joins) return
  keepTyped()
  const push = history.pushState.bind(history)
  const replace = history.replaceState.bind(history)
  let acted = false // whether the user has acted since the last entry
  let path = location.pathname
  const act = () => {
    acted = true
    waits = false
    opened = undefined
  }
  for (const event of ["pointerdown", "keydown"]) addEventListener(event, act, true)
  addEventListener("popstate", () => {
    if (repeats) return
    acted = false
    if (path === location.pathname) setTimeout(wentBack) // after Streamlit has asked for the page
    else awaitPage()
    path = location.pathname
  })
  const awaitPage = () => {
    opened = location.href
    waits = true
  }
  history.pushState = (state, unused, url) => {
    const [next, now] = [new URL(url ?? "", location), new URL(location)]
    const switches = next.pathname !== now.pathname
    if (waits) return
    if (switches && opened !== undefined) return awaitPage()
    // A page that answers at once writes its fields behind the path of the page before.
    const early = switches && !acted && next.search !== "" && next.search === now.search
    if ((switches && !early) || (acted && fields(next) !== fields(now))) {
      push(state, unused, url)
      acted = false
    } else replace(state, unused, url)
    if (opened !== undefined) opened = location.href
    path = location.pathname
  }
  history.pushState.joins = true
  history.replaceState = (state, unused, url) => {
    if (!waits) replace(state, unused, url)
  }
}
