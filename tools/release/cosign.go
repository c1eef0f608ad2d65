package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"

	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
)

// cosignName is the file with the signature for cosign.
const cosignName = sumsName + ".sig"

// cosignTypes are the types of the files that "cosign generate-key-pair" has written.
var cosignTypes = map[string]bool{"ENCRYPTED SIGSTORE PRIVATE KEY": true, "ENCRYPTED COSIGN PRIVATE KEY": true}

// cosign signs the checksums for cosign verify-blob. Equal checksums have equal signatures (RFC 6979).
func (r *release) cosign(keyFile string) error {
	if keyFile == "" {
		return nil
	}
	key, err := cosignKey(keyFile, os.Getenv("COSIGN_PASSWORD"))
	if err != nil {
		return fmt.Errorf("-cosign-key: %s, with the password in COSIGN_PASSWORD: %w", keyFile, err)
	}
	sums, err := os.ReadFile(r.path(sumsName))
	if err != nil {
		return err
	}
	digest := sha256.Sum256(sums)
	signature, err := key.Sign(nil, digest[:], crypto.SHA256) // without random bytes
	if err != nil {
		return fmt.Errorf("-cosign-key: %w", err)
	}
	fmt.Println("signed; verify with: cosign verify-blob --key cosign.pub --signature", cosignName, "--insecure-ignore-tlog", sumsName)
	return os.WriteFile(r.path(cosignName), []byte(base64.StdEncoding.EncodeToString(signature)+"\n"), 0o644)
}

// cosignKey reads a secret key of cosign (github.com/sigstore/cosign pkg/cosign/keys.go LoadPrivateKey).
func cosignKey(file, password string) (*ecdsa.PrivateKey, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(content)
	if block == nil || !cosignTypes[block.Type] {
		return nil, errors.New("got no secret key of cosign, want the file cosign.key of cosign generate-key-pair")
	}
	text, err := encrypted.Decrypt(block.Bytes, []byte(password))
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKCS8PrivateKey(text)
	if err != nil {
		return nil, err
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("got a key of the type %T, want one of ECDSA", parsed)
	}
	return key, nil
}
