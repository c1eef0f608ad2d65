package policy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/fastadmit/fastadmit/handlers"
)

// sourceOf returns the policies p0, p1 and so on of an API server, which nobody follows yet.
func sourceOf(a *apiServer, policies int) *Source[*admissionregistrationv1.ValidatingAdmissionPolicy, *admissionregistrationv1.ValidatingAdmissionPolicyBinding, string] {
	a.t.Helper()
	var all []string
	for i := range policies {
		all = append(all, customPolicy(fmt.Sprint("p", i), "", ""))
	}
	a.lists = map[string]string{
		"/api/v1/namespaces": `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`, policiesPath: strings.Join(all, ","),
		policiesPath[:len(policiesPath)-len("policies")] + "policybindings": binding("b", "p0", 2),
	}
	source, err := NewSource(ValidatingKind, handlers.Setup{Config: []byte(customConfig), Cluster: a.follow()},
		func(*admissionregistrationv1.ValidatingAdmissionPolicy) (string, error) { return "", nil })
	if err != nil {
		a.t.Fatal(err)
	}
	return source
}

// TestUnanswered counts the policies whose status is written while the API server closes the
// connection, and while it answers that it does not write.
func TestUnanswered(t *testing.T) {
	f := func(policies, want int, answers func(name string) bool) {
		t.Helper()
		var mu sync.Mutex
		asked := make(map[string]bool)
		a := &apiServer{t: t, put: func(w http.ResponseWriter, r *http.Request) {
			name := strings.TrimSuffix(r.URL.Path[len(policiesPath)+1:], "/status")
			mu.Lock()
			asked[name] = true
			mu.Unlock()
			if !answers(name) {
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409}`))
		}}
		source := sourceOf(a, policies)
		source.refresh(t.Context())
		source.resources.writeStatus(t.Context())
		mu.Lock()
		defer mu.Unlock()
		if len(asked) != want {
			t.Errorf("%d policies: the statuses of %v were written, want %d", policies, asked, want)
		}
	}
	never := func(string) bool { return false }
	f(unansweredMax-1, unansweredMax-1, never)
	f(unansweredMax, unansweredMax, never)
	f(unansweredMax+1, unansweredMax, never)
	f(9, 9, func(string) bool { return true })
	f(9, 9, func(name string) bool { return name == "p2" || name == "p5" })
}

// TestChangesWhileWritesHang has policies follow the cluster while the API server does not
// answer writes.
func TestChangesWhileWritesHang(t *testing.T) {
	a := &apiServer{t: t, events: make(chan string), put: func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // otherwise the server does not see that the client is gone
		<-r.Context().Done()
	}}
	source := sourceOf(a, 9)
	go source.Handler().Run(t.Context(), func() {})
	known := func() string {
		if all := source.all.Load(); all != nil {
			return fmt.Sprint(len(*all))
		}
		return ""
	}
	eventually(t, known, "9")
	for i := range 3 { // while the statuses of those before are written
		a.events <- fmt.Sprintf(`{"type":"ADDED","object":%s}`, customPolicy(fmt.Sprint("q", i), "", ""))
		eventually(t, known, fmt.Sprint(10+i))
	}
}
