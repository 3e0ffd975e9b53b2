package pdf

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/md5"
	"crypto/rc4"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/binary"
	"errors"
	"fmt"
)

// A lock decrypts the streams of a file. Strings outside streams are not decrypted, as reading text needs none
// of them.
type lock struct {
	key    []byte
	cipher string // CFM of section 7.6.5: V2 is RC4, AESV2, AESV3, or None
}

// passwordPad is the padding of passwords; algorithm 2.
const passwordPad = "\x28\xBF\x4E\x5E\x4E\x75\x8A\x41\x64\x00\x4E\x56\xFF\xFA\x01\x08\x2E\x2E\x00\xB6\xD0\x68\x3E\x80\x2F\x0C\xA9\xFE\x64\x53\x69\x7A"

// unlock finds the key of an encrypted file that opens with the empty password; PDF 32000-1,
// section 7.6, and PDF 2.0 for revision 6.
func (f *File) unlock(ctx context.Context) error {
	if f.trailer.key("Encrypt").kind == kindNull || f.lock != nil {
		return nil
	}
	dict := f.get(ctx, f.trailer, "Encrypt")
	version, revision := f.get(ctx, dict, "V").integerOr(5, 0), f.get(ctx, dict, "R").integerOr(6, 0)
	l := &lock{cipher: "V2"}
	if version >= 4 {
		filter := f.get(ctx, dict, "StmF").name()
		l.cipher = f.get(ctx, f.get(ctx, f.get(ctx, dict, "CF"), filter), "CFM").name()
		if filter == "" || filter == "Identity" {
			l.cipher = "None"
		}
	}
	known := l.cipher == "V2" || l.cipher == "None" || l.cipher == "AESV2" && version == 4 || l.cipher == "AESV3" && version == 5
	if f.get(ctx, dict, "Filter").name() != "Standard" || version < 1 || version == 3 || revision < 2 || !known {
		return fmt.Errorf("its encryption is not supported (version %d, revision %d); decrypt it first, for example with Bash: qpdf --decrypt FILE NEW", version, revision)
	}
	if version == 5 {
		l.key = f.newKey(ctx, dict, revision)
	} else {
		l.key = f.oldKey(ctx, dict, version, revision)
	}
	if l.key == nil {
		return errors.New("it is encrypted with a password; decrypt it first, for example with Bash: qpdf --password=PASSWORD --decrypt FILE NEW")
	}
	f.lock = l
	clear(f.cache)
	clear(f.streams)
	return f.err
}

// oldKey returns the key of versions 1 to 4, or nil if the password is not empty;
// algorithms 2, 4 and 5.
func (f *File) oldKey(ctx context.Context, dict object, version, revision int) []byte {
	owner, user := f.get(ctx, dict, "O").text, f.get(ctx, dict, "U").text
	var id string
	if ids := f.get(ctx, f.trailer, "ID").list(); len(ids) > 0 {
		id = f.resolve(ctx, ids[0]).text
	}
	length := 5
	switch bits := f.get(ctx, dict, "Length").integerOr(128, 40); {
	case version == 4:
		length = 16
	case version > 1 && bits >= 40:
		length = bits / 8
	}
	h := md5.New()
	h.Write([]byte(passwordPad + owner[:min(len(owner), 32)]))
	h.Write(binary.LittleEndian.AppendUint32(nil, uint32(int64(f.get(ctx, dict, "P").num))))
	h.Write([]byte(id))
	if revision >= 4 && f.get(ctx, dict, "EncryptMetadata").text == "false" {
		h.Write([]byte("\xFF\xFF\xFF\xFF"))
	}
	key := h.Sum(nil)[:length]
	if revision == 2 {
		if want := rc4With(key, []byte(passwordPad)); string(want) != user {
			return nil
		}
		return key
	}
	for range 50 {
		sum := md5.Sum(key)
		key = sum[:length]
	}
	sum := md5.Sum([]byte(passwordPad + id))
	want := sum[:]
	for i := range byte(20) {
		other := bytes.Clone(key)
		for j := range other {
			other[j] ^= i
		}
		want = rc4With(other, want)
	}
	if len(user) < 16 || user[:16] != string(want) {
		return nil
	}
	return key
}

// newKey returns the key of version 5, or nil if the password is not empty; algorithm 2.A.
func (f *File) newKey(ctx context.Context, dict object, revision int) []byte {
	user, sealed := f.get(ctx, dict, "U").text, f.get(ctx, dict, "UE").text
	if len(user) < 48 || len(sealed) < 32 {
		return nil
	}
	hash := hash6
	if revision == 5 {
		hash = func(salt string) []byte { sum := sha256.Sum256([]byte(salt)); return sum[:] }
	}
	if string(hash(user[32:40])) != user[:32] {
		return nil
	}
	key := []byte(sealed[:32])
	block := newAES(hash(user[40:48]))
	cipher.NewCBCDecrypter(block, make([]byte, aes.BlockSize)).CryptBlocks(key, key)
	return key
}

// hash6 is algorithm 2.B for the empty password.
func hash6(salt string) []byte {
	sum := sha256.Sum256([]byte(salt))
	k := sum[:]
	for round := 1; ; round++ {
		data := bytes.Repeat(k, 64)
		cipher.NewCBCEncrypter(newAES(k[:16]), k[16:32]).CryptBlocks(data, data)
		total := 0
		for _, c := range data[:16] {
			total += int(c)
		}
		switch total % 3 {
		case 0:
			sum := sha256.Sum256(data)
			k = sum[:]
		case 1:
			sum := sha512.Sum384(data)
			k = sum[:]
		case 2:
			sum := sha512.Sum512(data)
			k = sum[:]
		}
		if round >= 64 && int(data[len(data)-1]) <= round-32 {
			return k[:32]
		}
	}
}

// decrypt returns the bytes of a stream before its filters; algorithm 1.
func (f *File) decrypt(ctx context.Context, o object, data []byte) []byte {
	if f.lock == nil || f.lock.cipher == "None" || o.key("Type").name() == "XRef" || !f.spend(ctx, &f.left.decoded, len(data)) {
		return data
	}
	if f.lock.cipher == "AESV3" {
		return aesWith(f.lock.key, data)
	}
	seed := bytes.Clone(f.lock.key)
	num, generation := o.body.num, o.body.generation
	seed = append(seed, byte(num), byte(num>>8), byte(num>>16), byte(generation), byte(generation>>8))
	length := min(len(seed), 16)
	if f.lock.cipher == "AESV2" {
		seed = append(seed, "sAlT"...)
	}
	sum := md5.Sum(seed)
	if f.lock.cipher == "AESV2" {
		return aesWith(sum[:length], data)
	}
	return rc4With(sum[:length], data)
}

func rc4With(key, data []byte) []byte {
	c, err := rc4.NewCipher(key)
	if err != nil {
		panic(err) // the length of the key is wrong: a bug
	}
	out := make([]byte, len(data))
	c.XORKeyStream(out, data)
	return out
}

func newAES(key []byte) cipher.Block {
	b, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // the length of the key is wrong: a bug
	}
	return b
}

// aesWith decrypts the whole blocks after the first, which is the initialisation vector, and removes the padding.
func aesWith(key, data []byte) []byte {
	n := len(data) / aes.BlockSize * aes.BlockSize
	if n < 2*aes.BlockSize {
		return nil
	}
	out := make([]byte, n-aes.BlockSize)
	cipher.NewCBCDecrypter(newAES(key), data[:aes.BlockSize]).CryptBlocks(out, data[aes.BlockSize:n])
	if pad := int(out[len(out)-1]); pad <= aes.BlockSize && pad > 0 {
		out = out[:len(out)-pad]
	}
	return out
}
