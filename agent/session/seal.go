package session

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
)

// ErrUnsealed is wrapped by the error for a file of [SealedFile] that was not written with its key, or was
// changed since.
var ErrUnsealed = errors.New("its seal is missing or wrong: it was not saved with this key, or was changed since")

// minKey is the minimum size of a key in bytes: an attacker cannot try all keys of 128 bits.
const minKey = 16

func checkKey(key []byte) error {
	if len(key) < minKey {
		return fmt.Errorf("the key has %d bytes; use at least %d, from crypto/rand", len(key), minKey)
	}
	return nil
}

// The seal is the last member of a file's JSON object and has a fixed length, so that checkSeal finds it without parsing
// a file that may be forged.
const sealPrefix = `,"file_seal":"`

var sealLen = len(sealPrefix) + base64.RawURLEncoding.EncodedLen(sha256.Size) + len(`"}`)

// addSeal returns a JSON object, which must have a member, with its seal as a further member.
func addSeal(object, key []byte) []byte {
	body := bytes.TrimSuffix(object, []byte("}"))
	return append(bytes.Clone(body), sealOf(body, key)...)
}

// checkSeal returns [ErrUnsealed] unless data was returned by addSeal with this key; a line break may follow.
func checkSeal(data, key []byte) error {
	if err := checkKey(key); err != nil {
		return err
	}
	data = bytes.TrimSuffix(data, []byte("\n"))
	at := len(data) - sealLen
	// In constant time, so that an attacker cannot measure how much of a seal was right.
	if at < 0 || !hmac.Equal(data[at:], sealOf(data[:at], key)) {
		return ErrUnsealed
	}
	return nil
}

// sealOf returns the seal of a JSON object, and the closing bracket. The body is the object without this bracket.
func sealOf(body, key []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write(body)
	return []byte(sealPrefix + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)) + `"}`)
}
