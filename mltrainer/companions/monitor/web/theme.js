// Before anything is drawn: the theme that was chosen here, else the system's.
"use strict";
{
  const chosen = localStorage.getItem("mltrainer-theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
}
