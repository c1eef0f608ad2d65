// Package pathtoken implements path tokens. A path token is a secret segment in the path of
// a webhook; it authenticates the callers.
//
// The API server of a managed control plane sends neither a client certificate nor a bearer
// token to webhooks. But it calls the path in the webhook configuration, which only few
// users can read.
package pathtoken

import (
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/fastadmit/fastadmit/internal/files"
)

const (
	// LengthMin is the minimum length of a token. New returns tokens of this length, with
	// 130 random bits. 26 hexadecimal digits have 104 bits.
	LengthMin = 26

	// LengthMax is the maximum length of a token, that of a DNS label. kube-apiserver
	// accepts only DNS names as path segments of a webhook service (k8s.io/apiserver
	// pkg/util/webhook/validation.go).
	LengthMax = 63

	// TokensMax is the maximum number of tokens in a file. A rotation needs two. The
	// server compares each call with all tokens.
	TokensMax = 16
)

// New returns a random token.
func New() string { return strings.ToLower(rand.Text()) }

// Check returns an error if a token is invalid. The error does not contain the token.
func Check(token string) error {
	for i := range len(token) {
		if c := token[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return fmt.Errorf("got a path token whose character %d is not a lower-case letter or digit, want %d to %d of them, as printed by openssl rand -hex 16",
				i+1, LengthMin, LengthMax)
		}
	}
	if n := len(token); n < LengthMin || n > LengthMax {
		return fmt.Errorf("got a path token of %d characters, want %d to %d lower-case letters and digits, as printed by openssl rand -hex 16", n, LengthMin, LengthMax)
	}
	return nil
}

// ReadFile returns the tokens in a file, see Parse.
func ReadFile(name string) (tokens []string, err error) {
	content, err := files.Read(name)
	if err != nil {
		return nil, err
	}
	tokens, err = Parse(string(content))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return tokens, nil
}

// Parse reads the text of a file with one token per line. It ignores empty lines. The error
// contains the line number but not the token.
func Parse(text string) (tokens []string, err error) {
	number := 0
	for line := range strings.Lines(text) {
		number++
		token := strings.TrimSpace(line)
		if token == "" {
			continue
		}
		if err := Check(token); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		tokens = append(tokens, token)
	}
	if n := len(tokens); n == 0 || n > TokensMax {
		return nil, fmt.Errorf("got %d path tokens, want 1 to %d, one on each line", n, TokensMax)
	}
	return tokens, nil
}

// Of returns the first segment of a path or of a URI that begins with a path. The result is
// a view of path. It is nil if the segment is longer than LengthMax.
func Of(path []byte) []byte {
	if len(path) == 0 || path[0] != '/' {
		return nil
	}
	for i, c := range path[1:min(len(path), LengthMax+2)] {
		if c == '/' || c == '?' {
			return path[1 : i+1]
		}
	}
	if len(path) > LengthMax+1 {
		return nil
	}
	return path[1:]
}
