package mcpclient

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
)

// A server, or a proxy in front of it, may repeat the token of a request in the answer. The token could then get into a
// log, or to a model.

// minHiddenToken is the length of the shortest token that is hidden: a shorter token could be a word.
const minHiddenToken = 16

// tokenOf returns the token to hide, or "".
func tokenOf(req *http.Request) string {
	if token, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer "); ok && len(token) >= minHiddenToken {
		return token
	}
	return ""
}

// hideToken replaces the token of the request by asterisks in the body of the answer.
func hideToken(res *http.Response, req *http.Request) {
	if token := tokenOf(req); token != "" {
		res.Body = &hidingBody{ReadCloser: res.Body, token: []byte(token)}
	}
}

// withoutToken returns an error that does not contain the token of the request.
func withoutToken(err error, req *http.Request) error {
	if token := tokenOf(req); token != "" && strings.Contains(err.Error(), token) {
		return errors.New(strings.ReplaceAll(err.Error(), token, "*"))
	}
	return err
}

// A hidingBody replaces the token in a body by asterisks.
type hidingBody struct {
	io.ReadCloser
	token   []byte
	buf     [4 << 10]byte
	checked []byte // without the token; not yet returned by Read
	partial []byte // the end of what was read, which may be the beginning of the token
	err     error  // from the last read
}

func (b *hidingBody) Read(p []byte) (int, error) {
	for len(b.checked) == 0 && b.err == nil {
		n, err := b.ReadCloser.Read(b.buf[:])
		data := bytes.ReplaceAll(append(b.partial, b.buf[:n]...), b.token, bytes.Repeat([]byte("*"), len(b.token)))
		start := len(data) - min(len(data), len(b.token)-1) // of partial, which is empty when nothing follows
		for start < len(data) && (err != nil || !bytes.HasPrefix(b.token, data[start:])) {
			start++
		}
		b.checked, b.partial, b.err = data[:start], bytes.Clone(data[start:]), err
	}
	n := copy(p, b.checked)
	if b.checked = b.checked[n:]; n > 0 || len(p) == 0 {
		return n, nil
	}
	return 0, b.err
}
