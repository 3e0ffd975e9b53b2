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

// Keys seals values that only replicas can open. The keys are in the Store, and a new key is made every day.
type Keys struct {
	store  Store
	shared *sharedRead
	keys   atomic.Pointer[[]key] // newest first; set by load
}

// NewKeys returns the keys in a store.
func NewKeys(store Store) *Keys {
	k := &Keys{store: store, shared: newSharedRead()}
	k.keys.Store(new([]key))
	return k
}

// errSealed does not say why a seal is invalid, because that would help only a forger.
var errSealed = errors.New("the seal is invalid or too old")

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
	raw := newest.aead().Seal(slices.Clip(newest.ID), nil, plain, []byte(purpose)) // appends to a copy of the ID
	return base64.RawURLEncoding.EncodeToString(raw), nil
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
		if keys := *k.keys.Load(); canSeal(keys) {
			return keys[0], nil
		}
		if err := k.shared.do(ctx, k.rotate); err != nil {
			return key{}, err
		}
	}
}

// canSeal reports whether the first of the keys is new enough to seal with.
func canSeal(keys []key) bool {
	return len(keys) > 0 && time.Since(time.Unix(keys[0].Made, 0)) <= rotateAfter
}

// rotate makes a new key if the newest key is too old, unless another replica makes a key first.
func (k *Keys) rotate(ctx context.Context) error {
	old, err := k.load(ctx)
	if err != nil || canSeal(*k.keys.Load()) {
		return err
	}
	random := make([]byte, keySize+idSize)
	_, _ = rand.Read(random) // never fails
	keys := append([]key{{random[:keySize], random[keySize:], time.Now().Unix()}}, *k.keys.Load()...)
	raw, err := json.Marshal(keys[:min(len(keys), keptKeys)])
	if err != nil {
		return err
	}
	if _, err := k.store.Swap(ctx, keysName, old, raw, (keptKeys+1)*rotateAfter); err != nil { // longer than any key is used
		return Unavailable(ctx, err)
	}
	_, err = k.load(ctx) // the new key, or the key that another replica has stored first
	return err
}

// byID returns the key with the id. If the key is unknown, byID reads the store, because another replica may have made
// the key.
func (k *Keys) byID(ctx context.Context, id []byte) (key, error) {
	find := func() (key, error) {
		keys := *k.keys.Load()
		if i := slices.IndexFunc(keys, func(o key) bool { return string(o.ID) == string(id) }); i >= 0 {
			return keys[i], nil
		}
		return key{}, errSealed
	}
	if known, err := find(); err == nil {
		return known, nil
	}
	if err := k.shared.do(ctx, func(ctx context.Context) error { _, err := k.load(ctx); return err }); err != nil {
		return key{}, err
	}
	return find()
}

// load sets k.keys to the keys in the store, and returns the stored JSON.
func (k *Keys) load(ctx context.Context) (raw []byte, err error) {
	raw, err = k.store.Get(ctx, keysName)
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
