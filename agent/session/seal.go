package session

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
)

// ErrUnsealed is wrapped by the error for a file of [SealedFile] that was not written with its key, or was
// changed since.
var ErrUnsealed = errors.New("its seal is missing or wrong: it was not saved with this key, or was changed since")

// minKey is the minimum size of a key, in bytes: 128 bits cannot be found by trial.
const minKey = 16

// The seal is the last member of a file's JSON object and has a fixed length, so that it is found without parsing a
// file that is not trusted yet.
const sealMember = `,"file_seal":"`

var sealLen = len(sealMember) + base64.RawURLEncoding.EncodedLen(sha256.Size) + len(`"}`)

// sealed returns a JSON object with its seal as a further member.
func sealed(object, key []byte) []byte {
	body := bytes.TrimSuffix(object, []byte("}"))
	return append(bytes.Clone(body), sealOf(body, key)...)
}

// checkSeal returns [ErrUnsealed] unless data was returned by sealed with this key.
func checkSeal(data, key []byte) error {
	data = bytes.TrimSuffix(data, []byte("\n"))
	at := len(data) - sealLen
	// In constant time, so that an attacker cannot measure how much of a seal was right.
	if at < 0 || !hmac.Equal(data[at:], sealOf(data[:at], key)) {
		return ErrUnsealed
	}
	return nil
}

func sealOf(body, key []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write(body)
	return []byte(sealMember + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)) + `"}`)
}
