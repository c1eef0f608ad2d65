// Package pathtoken is the syntax of path tokens: secret segments of the path of
// a webhook, by which a server knows its callers.
//
// A managed control plane presents neither a client certificate nor a bearer
// token to a webhook. But it calls the path that the webhook configuration
// names, and few may read that.
package pathtoken

import (
	"crypto/rand"
	"fmt"
	"strings"
)

const (
	// LengthMin is how many characters a token has at least. New makes tokens of
	// this length, which have 130 random bits. 26 hexadecimal digits have 104.
	LengthMin = 26

	// LengthMax is how long a DNS label may be. kube-apiserver takes only DNS names
	// as segments of the path of a webhook's service (k8s.io/apiserver
	// pkg/util/webhook/validation.go).
	LengthMax = 63

	// TokensMax is how many tokens a file may have. A rotation needs two; each call
	// is compared with all of them.
	TokensMax = 16
)

// New returns a random token.
func New() string { return strings.ToLower(rand.Text()) }

// Check returns what is wrong with a token, nil if nothing is. The error does not
// show the token.
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

// Parse reads a file that has a token on each line. Empty lines do not count.
// The error names the line and does not show the token.
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

// Of returns the first segment of a path, or of a URI that begins with one. It is
// empty if it is too long for a token.
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
