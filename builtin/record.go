package builtin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"slices"

	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool/toolstate"
)

// maxEditable is the size of the largest file that Write and Edit change, in bytes. The content of larger files
// is not recorded.
const maxEditable = 32 << 20

// maxRecords is how many files a session records. The record of the file that was read longest ago is dropped
// first; that file must be read again before a change.
const maxRecords = 1000

// A fileRecord records that the content with this hash was read from a file.
type fileRecord struct {
	Path string `json:"path"` // links resolved
	Hash string `json:"hash"` // of the content: hex of the first 16 bytes of its SHA-256
}

// filesRead has the files that the session has read, the latest last.
var filesRead = toolstate.NewKey[[]fileRecord]("files_read")

func contentHash(data []byte) string {
	h := sha256.Sum256(data)
	return hex.EncodeToString(h[:16])
}

// record records the hash of a file's content that the session has read or written.
func (c *Config) record(ctx context.Context, file permission.File, hash string) error {
	return filesRead.Update(ctx, func(list *[]fileRecord) error {
		*list = slices.DeleteFunc(*list, func(r fileRecord) bool { return r.Path == file.Path })
		*list = append(*list, fileRecord{Path: file.Path, Hash: hash})
		if n := len(*list) - maxRecords; n > 0 {
			*list = slices.Delete(*list, 0, n)
		}
		return nil
	})
}

// recorded returns the recorded hash of a file's content, or "".
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

// A recorder hashes what is read through it, unless the file is too large to be edited.
type recorder struct {
	r io.Reader
	h hash.Hash // nil if too large
}

func newRecorder(r io.Reader, size int64) *recorder {
	if size > maxEditable {
		return &recorder{r: r}
	}
	h := sha256.New()
	return &recorder{r: io.TeeReader(r, h), h: h}
}

func (r *recorder) Read(p []byte) (int, error) { return r.r.Read(p) }

// sum reads the rest and returns the hash of the whole content, or "" if the file is too large to be edited.
func (r *recorder) sum() (string, error) {
	if r.h == nil {
		return "", nil
	}
	if _, err := io.Copy(io.Discard, io.LimitReader(r.r, maxEditable)); err != nil {
		return "", err
	}
	return hex.EncodeToString(r.h.Sum(nil)[:16]), nil
}
