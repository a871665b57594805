// Escape closes a dialog also if nothing in it has the focus, as after a download, whose button was disabled.
export default function () {
  const pressed = ({ key }) => {
    if (key === "Escape" && document.activeElement === document.body)
      document.querySelector("[role=dialog] button[aria-label=Close]")?.click()
  }
  document.addEventListener("keydown", pressed)
  return () => document.removeEventListener("keydown", pressed)
}
