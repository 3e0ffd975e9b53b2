package main

import "github.com/kitbag-go/kitbag/builtin"

// pdfReader reads PDF files for Read. It is nil unless the command is built with -tags pdfium: PDFium and what runs it
// are a quarter of the program, and take a seventh of the time to compile it. Without it Read refers to pdftotext.
var pdfReader builtin.PDFReader
