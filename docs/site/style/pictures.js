/* Marks wide pictures, which a phone shows with a scroll bar instead of with letters of three pixels. */
"use strict";

for (const picture of document.querySelectorAll("article img"))
  picture.decode().then(
    () => picture.classList.toggle("wide", picture.naturalWidth > 700),
    () => {},
  );
