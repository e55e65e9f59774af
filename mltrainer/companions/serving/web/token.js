// Fetches the form with the token, and takes this page's place with it.
"use strict";

{
  const door = document.getElementById("door");

  door.addEventListener("submit", async (event) => {
    event.preventDefault();
    const token = document.getElementById("token").value;
    const response = await fetch("form", { headers: { Authorization: `Bearer ${token}` } });
    if (!response.ok) {
      document.getElementById("refused").textContent = (await response.json()).what;
      return;
    }
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    document.title = page.title;
    document.body.replaceChildren(...page.body.children);
    document.getElementById("token").value = token;
    const script = document.createElement("script"); // one that was parsed does not run
    script.src = "form.js";
    document.body.append(script);
  });

  door.querySelector("button").disabled = false; // before, a click would have sent the token as a page's address
}
