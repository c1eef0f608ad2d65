package jsonclient_test

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/fastadmit/fastadmit/handlers/internal/jsonclient"
)

// TestProtocol has a server that supports HTTP/2, which the client must not use; see answers.Protocols.
func TestProtocol(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%q", r.Proto) }))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	client, err := jsonclient.New(&jsonclient.Config{URL: server.URL, CAFile: ca}, 100)
	if err != nil {
		t.Fatal(err)
	}
	var got string
	if err := client.Get(t.Context(), "/", nil, &got); err != nil || got != "HTTP/1.1" {
		t.Errorf("got %q, %v, want HTTP/1.1", got, err)
	}
}
