package replica

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

const (
	// rotateAfter is how long a key is used to seal. keptKeys is how many keys can open seals: the newest and
	// earlier ones.
	rotateAfter = 24 * time.Hour
	keptKeys    = 3

	keysName = "keys" // in the Store
	keySize  = 32
	idSize   = 4
)

// A key is stored as JSON.
type key struct {
	Secret []byte `json:"secret"` // for AES-256-GCM
	ID     []byte `json:"id"`     // precedes each text that the key has sealed
	Made   int64  `json:"made"`   // Unix seconds
}

// Keys seals values that only replicas can open. The keys are in the Store, and a new one is made every day.
type Keys struct {
	store Store
	read  *sharedRead
	keys  atomic.Pointer[[]key] // newest first; set by read
}

// NewKeys returns the keys in a store.
func NewKeys(store Store) *Keys {
	k := &Keys{store: store, read: newSharedRead()}
	k.keys.Store(new([]key))
	return k
}

// errSealed does not say why a seal is invalid, because that would help only a forger.
var errSealed = errors.New("its seal is invalid or too old")

// Seal encrypts v. Open decrypts the text only for the same purpose.
func (k *Keys) Seal(ctx context.Context, purpose string, v any) (string, error) {
	newest, err := k.newest(ctx)
	if err != nil {
		return "", err
	}
	plain, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(newest.aead().Seal(newest.ID[:idSize:idSize], nil, plain, []byte(purpose))), nil
}

// Open decrypts a text that a replica has sealed for the purpose, and stores the value in v.
func (k *Keys) Open(ctx context.Context, purpose, sealed string, v any) error {
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil || len(raw) < idSize {
		return errSealed
	}
	sealer, err := k.byID(ctx, raw[:idSize])
	if err != nil {
		return err
	}
	plain, err := sealer.aead().Open(nil, nil, raw[idSize:], []byte(purpose))
	if err != nil {
		return errSealed
	}
	return json.Unmarshal(plain, v)
}

func (k *key) aead() cipher.AEAD {
	block, err := aes.NewCipher(k.Secret)
	if err == nil {
		var a cipher.AEAD
		if a, err = cipher.NewGCMWithRandomNonce(block); err == nil {
			return a
		}
	}
	panic(err) // load has checked the size of the key
}

// newest returns the key to seal with.
func (k *Keys) newest(ctx context.Context) (key, error) {
	for {
		if keys := *k.keys.Load(); len(keys) > 0 && time.Since(time.Unix(keys[0].Made, 0)) <= rotateAfter {
			return keys[0], nil
		}
		if err := k.read.do(ctx, k.rotate); err != nil {
			return key{}, err
		}
	}
}

// rotate makes a new key if the newest key is too old, unless another replica makes one first.
func (k *Keys) rotate(ctx context.Context) error {
	old, err := k.load(ctx)
	if err != nil {
		return err
	}
	keys := *k.keys.Load()
	if len(keys) > 0 && time.Since(time.Unix(keys[0].Made, 0)) <= rotateAfter {
		return nil
	}
	secret := make([]byte, keySize+idSize)
	_, _ = rand.Read(secret) // never fails
	keys = append([]key{{secret[:keySize], secret[keySize:], time.Now().Unix()}}, keys...)
	raw, err := json.Marshal(keys[:min(len(keys), keptKeys)])
	if err != nil {
		return err
	}
	if _, err := k.store.Swap(ctx, keysName, old, raw, (keptKeys+1)*rotateAfter); err != nil {
		return Unavailable(ctx, err)
	}
	_, err = k.load(ctx) // the new key, or the key that another replica has stored first
	return err
}

// byID returns the key with the id. It reads the store if the key is unknown, because another replica may have
// made it.
func (k *Keys) byID(ctx context.Context, id []byte) (key, error) {
	find := func() (key, error) {
		keys := *k.keys.Load()
		if i := slices.IndexFunc(keys, func(o key) bool { return string(o.ID) == string(id) }); i >= 0 {
			return keys[i], nil
		}
		return key{}, errSealed
	}
	if found, err := find(); err == nil {
		return found, nil
	}
	if err := k.read.do(ctx, func(ctx context.Context) error { _, err := k.load(ctx); return err }); err != nil {
		return key{}, err
	}
	return find()
}

// load sets k.keys to the keys in the store, and returns their stored form.
func (k *Keys) load(ctx context.Context) ([]byte, error) {
	raw, err := k.store.Get(ctx, keysName)
	if err != nil {
		return nil, Unavailable(ctx, err)
	}
	var keys []key
	if raw != nil {
		if err := json.Unmarshal(raw, &keys); err != nil {
			return nil, fmt.Errorf("read the keys of the replicas: %w", err)
		}
	}
	for _, loaded := range keys {
		if len(loaded.Secret) != keySize || len(loaded.ID) != idSize {
			return nil, errors.New("the stored keys of the replicas have the format of another version; run the same version in all replicas")
		}
	}
	k.keys.Store(&keys)
	return raw, nil
}
