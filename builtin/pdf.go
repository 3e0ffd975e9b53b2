package builtin

import (
	"fmt"
	"io"
	"io/fs"

	"github.com/kitbag-go/kitbag/message"
)

func readPDF(f io.Reader, info fs.FileInfo, name, pages string) ([]message.Block, error) {
	return nil, fmt.Errorf("%s: PDF files cannot be read yet; use Bash with pdftotext", name)
}
