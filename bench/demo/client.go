package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// A client calls the webhook as kube-apiserver does.
type client struct {
	http *http.Client
	url  string
}

// newClient returns a client of a server. It trusts the certificate with the fingerprint and no
// other.
func newClient(url, fingerprint string) (*client, error) {
	want, err := hex.DecodeString(fingerprint)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{
		InsecureSkipVerify: true, // the check below is stricter
		VerifyPeerCertificate: func(certificates [][]byte, _ [][]*x509.Certificate) error {
			if got := sha256.Sum256(certificates[0]); !bytes.Equal(got[:], want) {
				return errors.New("the server has another certificate than it said")
			}
			return nil
		},
	}
	return &client{
		http: &http.Client{Transport: &http.Transport{TLSClientConfig: config}, Timeout: time.Minute},
		url:  url,
	}, nil
}

// A decision is the result of a review.
type decision struct {
	allowed bool
	message string
	patch   string
}

// answer contains the fields of an AdmissionReview that are read.
type answer struct {
	Response struct {
		UID     string
		Allowed bool
		Patch   []byte
		Status  struct{ Message string }
	}
}

// admit sends a review to the mutating endpoint and then, patched, to the validating one.
func (c *client) admit(ctx context.Context, body []byte) (decision, error) {
	mutated, err := c.post(ctx, "/mutate", body)
	if err != nil {
		return decision{}, err
	}
	d := decision{allowed: mutated.Response.Allowed, message: mutated.Response.Status.Message, patch: string(mutated.Response.Patch)}
	if !d.allowed {
		return d, nil
	}
	if d.patch != "" {
		if body, err = applyPatch(body, mutated.Response.Patch); err != nil {
			return decision{}, err
		}
	}
	validated, err := c.post(ctx, "/validate", body)
	if err != nil {
		return decision{}, err
	}
	d.allowed, d.message = validated.Response.Allowed, validated.Response.Status.Message
	return d, nil
}

// post sends a review, checks the answer and returns it.
func (c *client) post(ctx context.Context, path string, body []byte) (*answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+path+"?timeout=10s", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("got status %s: %s", response.Status, content)
	}
	var a answer
	if err := json.Unmarshal(content, &a); err != nil {
		return nil, err
	}
	var sent struct{ Request struct{ UID string } }
	if err := json.Unmarshal(body, &sent); err != nil {
		return nil, err
	}
	if a.Response.UID != sent.Request.UID {
		return nil, fmt.Errorf("got the answer to %q, want that to %q", a.Response.UID, sent.Request.UID)
	}
	return &a, nil
}

// applyPatch patches the object in a review with kube-apiserver's library.
func applyPatch(body, patch []byte) ([]byte, error) {
	var review map[string]json.RawMessage
	if err := json.Unmarshal(body, &review); err != nil {
		return nil, err
	}
	var request map[string]json.RawMessage
	if err := json.Unmarshal(review["request"], &request); err != nil {
		return nil, err
	}
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, err
	}
	if request["object"], err = operations.Apply(request["object"]); err != nil {
		return nil, fmt.Errorf("cannot apply %s: %w", patch, err)
	}
	if review["request"], err = json.Marshal(request); err != nil {
		return nil, err
	}
	return json.Marshal(review)
}
