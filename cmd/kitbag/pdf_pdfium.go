//go:build pdfium

package main

import "github.com/kitbag-go/kitbag/builtin/pdf"

func init() { pdfReader = pdf.Reader{} }
