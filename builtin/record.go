package builtin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"slices"

	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

// maxEditable is the size of the largest file that Write and Edit change, in
// bytes; what is larger need not be remembered.
const maxEditable = 32 << 20

// maxRecords bounds what a session carries: how many files a session remembers; the one that was not read
// for longest is forgotten first, and must be read again before it is changed.
const maxRecords = 1000

// A fileRecord says that the content with this hash was read from a file.
type fileRecord struct {
	Path string `json:"path"` // links resolved
	Hash string `json:"hash"` // of the content: hex of the first 16 bytes of its SHA-256
}

// filesRead holds what the session has seen of files, the latest last.
var filesRead = tool.NewStateKey[[]fileRecord]("files_read")

func contentHash(data []byte) string {
	h := sha256.Sum256(data)
	return hex.EncodeToString(h[:16])
}

// record notes that content with this hash is what the session knows of a file.
func (c *Config) record(ctx context.Context, file permission.File, hash string) error {
	real := file.Path
	return filesRead.Update(ctx, func(list *[]fileRecord) error {
		*list = slices.DeleteFunc(*list, func(r fileRecord) bool { return r.Path == real })
		*list = append(*list, fileRecord{Path: real, Hash: hash})
		if n := len(*list) - maxRecords; n > 0 {
			*list = slices.Delete(*list, 0, n)
		}
		return nil
	})
}

// recorded returns the hash of what the session knows of a file, or "".
func (c *Config) recorded(ctx context.Context, file permission.File) (hash string, err error) {
	err = filesRead.Update(ctx, func(list *[]fileRecord) error {
		for _, r := range *list {
			if r.Path == file.Path {
				hash = r.Hash
			}
		}
		return nil
	})
	return hash, err
}

// A recorder hashes what is read through it, if it is not too large to be
// edited anyway.
type recorder struct {
	r io.Reader
	h hash.Hash // nil: too large
}

func newRecorder(r io.Reader, size int64) *recorder {
	if size > maxEditable {
		return &recorder{r: r}
	}
	h := sha256.New()
	return &recorder{r: io.TeeReader(r, h), h: h}
}

func (r *recorder) Read(p []byte) (int, error) { return r.r.Read(p) }

// sum reads the rest and returns the hash of all, or "" if there is none.
func (r *recorder) sum() (string, error) {
	if r.h == nil {
		return "", nil
	}
	if _, err := io.Copy(io.Discard, io.LimitReader(r.r, maxEditable)); err != nil {
		return "", err
	}
	return hex.EncodeToString(r.h.Sum(nil)[:16]), nil
}
