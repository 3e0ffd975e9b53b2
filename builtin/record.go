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

// maxRecords is how many files a session records. The oldest record is dropped first; its file must then be read again
// before a change.
const maxRecords = 1000

// A fileRecord records the content that the session has last read from or written to a file.
type fileRecord struct {
	Path string `json:"path"` // links resolved
	Hash string `json:"hash"` // see hashText
}

// filesRead has the files that the session has read or written, the latest last.
var filesRead = toolstate.NewKey[[]fileRecord]("files_read")

func contentHash(data []byte) string {
	sum := sha256.Sum256(data)
	return hashText(sum[:])
}

// hashText returns a SHA-256 as it is recorded: the first 16 bytes in hex.
func hashText(sum []byte) string { return hex.EncodeToString(sum[:16]) }

// recordHash records the hash of a file's content that the session has read or written.
func recordHash(ctx context.Context, file permission.File, hash string) error {
	return filesRead.Update(ctx, func(list *[]fileRecord) error {
		*list = slices.DeleteFunc(*list, func(r fileRecord) bool { return r.Path == file.Path })
		*list = append(*list, fileRecord{Path: file.Path, Hash: hash})
		if n := len(*list) - maxRecords; n > 0 {
			*list = slices.Delete(*list, 0, n)
		}
		return nil
	})
}

// recordedHash returns the recorded hash of a file's content; "" if there is none.
func recordedHash(ctx context.Context, file permission.File) (hash string, err error) {
	err = filesRead.Update(ctx, func(list *[]fileRecord) error {
		if i := slices.IndexFunc(*list, func(r fileRecord) bool { return r.Path == file.Path }); i >= 0 {
			hash = (*list)[i].Hash
		}
		return nil
	})
	return hash, err
}

// A hashingReader hashes the content of a file that is read through it.
type hashingReader struct {
	io.Reader
	hash hash.Hash // nil if the file is too large to be edited
}

func newHashingReader(r io.Reader, size int64) hashingReader {
	if size > maxEditable {
		return hashingReader{Reader: r}
	}
	h := sha256.New()
	return hashingReader{io.TeeReader(r, h), h}
}

// recordHash reads the rest of the file and records the hash of the whole content.
func (r hashingReader) recordHash(ctx context.Context, file permission.File) error {
	if r.hash == nil {
		return nil
	}
	if _, err := io.Copy(io.Discard, io.LimitReader(r, maxEditable)); err != nil { // limited, as the file may grow
		return err
	}
	return recordHash(ctx, file, hashText(r.hash.Sum(nil)))
}
