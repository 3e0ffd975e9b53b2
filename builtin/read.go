package builtin

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/toolstate"
)

//go:embed text/read.md
var readText string

//go:embed text/read_pdf.md
var readPDFText string

const (
	maxLines     = 2000     // lines of one call
	maxLineChars = 2000     // characters of one line
	maxReadText  = 80_000   // bytes of text of one call; an agent would cut longer results in the middle
	maxImage     = 10 << 20 // bytes
	maxDocument  = 64 << 20 // bytes of a notebook or PDF file
	sniffLen     = 8 << 10  // bytes that are searched for a zero byte, the sign of a binary file
)

// imageTypeOf has the media types of images by extension.
var imageTypeOf = map[string]string{
	".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp",
	".bmp": "image/bmp", ".tiff": "image/tiff", ".tif": "image/tiff", ".ico": "image/x-icon",
}

type readIn struct {
	FilePath string `json:"file_path" jsonschema:"minLength=1" jsonschema_description:"path of the file"`
	Offset   int    `json:"offset,omitempty" jsonschema:"minimum=1,default=1" jsonschema_description:"number of the first line to return"`
	Limit    int    `json:"limit,omitempty" jsonschema:"minimum=1,default=2000" jsonschema_description:"how many lines to return; 2000 at most"`
	Pages    string `json:"pages,omitempty" jsonschema_description:"pages of a PDF file, such as \"3\" or \"1-5\""`
}

type read struct {
	tool.Tool
	judge // implements [tool.Judge]
}

// Read returns the tool that reads files.
func Read(c Config) (tool.Tool, error) {
	c, err := c.complete()
	if err != nil {
		return nil, err
	}
	if c.ImageTypes == nil {
		c.ImageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}
	}
	r := &read{judge: judge{Config: c, tool: "Read", access: readsFile, path: filePath}}
	text := readText
	if c.PDF != nil {
		text += readPDFText
	}
	r.Tool, err = tool.NewStream("Read", text, r.run, tool.Options{ReadOnly: true, Parallel: true})
	return r, err
}

func (r *read) run(ctx context.Context, in readIn) iter.Seq2[tool.Chunk, error] {
	return func(yield func(tool.Chunk, error) bool) {
		blocks, err := r.read(ctx, in)
		if err != nil {
			yield(tool.Chunk{}, err)
			return
		}
		for _, b := range blocks {
			if !yield(tool.Chunk{Block: b}, nil) {
				return
			}
		}
	}
}

func (r *read) read(ctx context.Context, in readIn) ([]message.Block, error) {
	target := r.target(ctx, in.FilePath)
	file, info, err := r.openFile(ctx, target, in.FilePath)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content := contextReader{ctx, file} // skipping to a late line may take long
	ext := strings.ToLower(path.Ext(in.FilePath))
	if in.Pages != "" && ext != ".pdf" {
		return nil, fmt.Errorf("pages is for PDF files, which %s is not; use offset and limit", in.FilePath)
	}
	switch {
	case imageTypeOf[ext] != "":
		return r.readImage(content, info, in.FilePath, imageTypeOf[ext])
	case ext == ".pdf":
		return r.readPDF(ctx, content, info, in.FilePath, in.Pages)
	}
	hashing := newHashingReader(content, info.Size())
	var blocks []message.Block
	if ext == ".ipynb" {
		blocks, err = r.readNotebook(hashing, info, in.FilePath)
	} else {
		blocks, err = readTextFile(hashing, in)
	}
	if err == nil && toolstate.From(ctx) != nil {
		err = hashing.recordHash(ctx, target)
	}
	return blocks, err
}

// openFile opens a file that the model named; name is for errors.
func (c *Config) openFile(ctx context.Context, file permission.File, name string) (fs.File, fs.FileInfo, error) {
	f, err := c.Backend.Open(ctx, file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, fmt.Errorf("%s: %w; look for it with Glob", name, fs.ErrNotExist)
	case errors.Is(err, ErrNotRegular):
		return nil, nil, fmt.Errorf("%s is %w, such as a pipe or a device, and cannot be read; look at it with Bash (ls -l)", name, ErrNotRegular)
	case errors.Is(err, syscall.ENOTDIR):
		return nil, nil, fmt.Errorf("%s: a directory of this path is a file, so there is nothing below it; choose another path", name)
	case err != nil:
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%s is a directory, not a file; list it with Glob, and name a file in it", name)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

func (r *read) readImage(f io.Reader, info fs.FileInfo, name, mediaType string) ([]message.Block, error) {
	if !r.returnsImage(mediaType) {
		return nil, fmt.Errorf("%s is %s, which you cannot see; convert it with Bash to one of %s", name, mediaType, strings.Join(r.ImageTypes, ", "))
	}
	data, err := readAll(f, info, name, maxImage)
	if err != nil {
		return nil, err
	}
	return []message.Block{&message.Data{Name: path.Base(name), MediaType: mediaType, Bytes: data}}, nil
}

// returnsImage reports whether images of the media type are returned. An invalid pattern matches none.
func (c *Config) returnsImage(mediaType string) bool {
	return slices.ContainsFunc(c.ImageTypes, func(p string) bool { ok, _ := path.Match(p, mediaType); return ok })
}

// readAll reads a file of at most limit bytes, even if the file grows meanwhile.
func readAll(r io.Reader, info fs.FileInfo, name string, limit int64) ([]byte, error) {
	tooLarge := fmt.Errorf("%s is larger than %d MiB, the limit for such a file; make it smaller, or read a part of it, with Bash", name, limit>>20)
	if info.Size() > limit {
		return nil, tooLarge
	}
	var b bytes.Buffer
	b.Grow(int(info.Size()) + bytes.MinRead) // ReadFrom would double a buffer with less than MinRead bytes free
	n, err := b.ReadFrom(io.LimitReader(r, limit+1))
	if err == nil && n > limit {
		err = tooLarge
	}
	if err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// readTextFile returns the requested lines with their numbers.
func readTextFile(r io.Reader, in readIn) ([]message.Block, error) {
	lines := newLineReader(r)
	if start := lines.peek(sniffLen); bytes.IndexByte(start, 0) >= 0 {
		return nil, fmt.Errorf("%s is not text, since it has zero bytes; look at it with Bash (file, xxd, or iconv for UTF-16)", in.FilePath)
	}
	first, limit := max(in.Offset, 1), maxLines
	if in.Limit > 0 {
		limit = min(in.Limit, maxLines)
	}
	number := 1 // of the next line
	for ; number < first; number++ {
		if _, _, err := lines.next(0); err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
	}
	var b strings.Builder
	for ; number < first+limit && b.Len() < maxReadText; number++ {
		line, truncated, err := lines.next(maxLineChars)
		if err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%6d\t%s", number, line)
		if truncated {
			b.WriteString("[truncated]")
		}
	}
	switch _, _, err := lines.next(0); { // err is nil if there is a further line
	case b.Len() == 0 && number == 1:
		b.WriteString("[the file is empty]")
	case b.Len() == 0:
		fmt.Fprintf(&b, "[%s has %s; line %d does not exist: use a smaller offset]", in.FilePath, plural(number-1, "line"), first)
	case err == nil && (limit == maxLines || number < first+limit): // cut by a limit of Read, not by in.Limit
		fmt.Fprintf(&b, "\n\n[there are more lines: continue with offset %d]", number)
		if in.Limit > maxLines {
			fmt.Fprintf(&b, "\n[limit %d is too large: one call returns at most %d lines]", in.Limit, maxLines)
		}
	case err != nil && err != io.EOF:
		return nil, err
	}
	return textBlocks(b.String()), nil
}

func textBlocks(s string) []message.Block { return []message.Block{&message.Text{Text: s}} }

// plural returns n with the noun: "1 line", "2 lines".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// A lineReader reads lines that end in LF, CRLF or CR, in bounded memory.
type lineReader struct {
	r          io.Reader
	buf        []byte
	start, end int    // of the data in buf
	err        error  // of r
	afterCR    bool   // an LF at start belongs to the end of the previous line
	line       []byte // reused by next
}

func newLineReader(r io.Reader) *lineReader {
	return &lineReader{r: r, buf: make([]byte, 256<<10)}
}

// peek returns up to n bytes without consuming them. It must be the first call.
func (l *lineReader) peek(n int) []byte {
	for l.end < n && l.fill() {
	}
	return l.buf[:min(l.end, n)]
}

// fill reads more into the buffer, which must not be full. It reports false when r has failed or ended.
func (l *lineReader) fill() bool {
	for l.err == nil {
		var n int
		n, l.err = l.r.Read(l.buf[l.end:])
		l.end += n
		if n > 0 {
			return true
		}
	}
	return false
}

// next returns the first maxChars characters of the next line, as valid UTF-8, and whether the line has more. With
// maxChars 0 it only skips the line. The error is io.EOF after the last line.
func (l *lineReader) next(maxChars int) (line string, truncated bool, err error) {
	l.line = l.line[:0]
	maxBytes := maxChars * utf8.UTFMax
	inLine := false // the line has begun
	for {
		if l.start == l.end {
			l.start, l.end = 0, 0
			if !l.fill() {
				if l.err != io.EOF || !inLine {
					return "", false, l.err
				}
				break
			}
		}
		if l.afterCR {
			l.afterCR = false
			if l.buf[l.start] == '\n' {
				l.start++
				continue
			}
		}
		inLine = true
		chunk := l.buf[l.start:l.end]
		n := lineEnd(chunk)
		room := maxBytes - len(l.line)
		truncated = truncated || n > room
		l.line = append(l.line, chunk[:min(n, room)]...)
		l.start += n
		if n < len(chunk) {
			l.start++
			l.afterCR = chunk[n] == '\r'
			break
		}
	}
	if maxChars == 0 {
		return "", false, nil
	}
	line, more := firstChars(string(l.line), maxChars)
	return line, truncated || more, nil
}

// lineEnd returns the index of the first LF or CR in b, or its length.
func lineEnd(b []byte) int {
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		b = b[:i]
	}
	if i := bytes.IndexByte(b, '\r'); i >= 0 {
		return i
	}
	return len(b)
}

// firstChars returns the first n characters of s, as valid UTF-8, and whether s has more.
func firstChars(s string, n int) (start string, truncated bool) {
	s = strings.ToValidUTF8(s, "\uFFFD")
	for i := range s {
		if n == 0 {
			return s[:i], true
		}
		n--
	}
	return s, false
}

func unmarshal[T any](input json.RawMessage) (T, error) {
	var in T
	err := json.Unmarshal(input, &in)
	return in, err
}

// A contextReader stops reading when ctx ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
