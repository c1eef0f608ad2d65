package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/internal/registration/certs"
)

// taken are the path tokens that a replica accepts.
type taken struct {
	tokens []string
	bare   bool
}

func (r *replica) take(accepted []string, bare bool) { r.takes.Store(&taken{accepted, bare}) }

// refused rejects calls with paths that a server with path tokens would reject,
// and answers the probe for an accepted path.
func (r *replica) refused(w http.ResponseWriter, request *http.Request) bool {
	takes := r.takes.Load()
	if takes == nil {
		return false
	}
	token, _, _ := strings.Cut(strings.TrimPrefix(request.URL.Path, "/"), "/")
	switch {
	case !slices.Contains(takes.tokens, token):
		http.Error(w, "", http.StatusUnauthorized)
	case request.Method != http.MethodPost:
		http.Error(w, "", http.StatusMethodNotAllowed)
	default:
		return false
	}
	return true
}

// pathOf returns the path of the first webhook.
func pathOf(configurations []runtime.Object) string {
	if len(configurations) == 0 {
		return ""
	}
	service := configurations[0].(*admissionregistrationv1.MutatingWebhookConfiguration).Webhooks[0].ClientConfig.Service
	if service.Path == nil {
		return ""
	}
	return *service.Path
}

// calledWith calls a replica with that token.
func (r *replica) calledWith(token string) int {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := client.Get("https://" + r.address + "/" + token + "/mutate")
	if err != nil {
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}

// TestPathTokens lets two replicas replace their path token while two API
// servers call them. No call fails, and afterwards the old token is rejected.
func TestPathTokens(t *testing.T) {
	t.Parallel()
	servers := startCluster(t, 2)
	var service endpoints
	port := service.serve(t)
	prepare(t, servers[0], port)
	o := options(servers[0])
	o.Configurations, o.Owner = configurations(port), "fastadmit"
	allow(t, servers, "fastadmit", &o)
	for i := range 2 {
		for _, c := range []*admissionregistrationv1.ServiceReference{
			o.Configurations[0].(*admissionregistrationv1.MutatingWebhookConfiguration).Webhooks[i].ClientConfig.Service,
			o.Configurations[1].(*admissionregistrationv1.ValidatingWebhookConfiguration).Webhooks[i].ClientConfig.Service,
		} {
			c.Path = new("/" + certs.PathTokenPlaceholder + "/mutate")
		}
	}
	o.CALife, o.LeafLife, o.PathTokenLife = 0, 0, 8*propagation
	log := new(cluster.Buffer)
	var replicas []*replica
	for _, s := range servers {
		o := o
		o.Config = rest.CopyConfig(o.Config)
		o.Config.Host = s.Config.Host
		replicas = append(replicas, startReplica(t, o, log))
		service.add(replicas[len(replicas)-1])
	}
	secrets := servers[0].Client.CoreV1().Secrets(namespace)
	tokens := func() (all []string) {
		secret, err := secrets.Get(context.Background(), secretName, metav1.GetOptions{})
		if err != nil {
			if apierrors.IsNotFound(err) {
				return nil
			}
			t.Fatal(err)
		}
		for line := range bytes.Lines(secret.Data["path-tokens"]) {
			token, _, _ := strings.Cut(string(line), " ")
			all = append(all, token)
		}
		return all
	}
	awaitCalls(t, servers, replicas)
	c := startCallers(servers)
	defer c.stop()
	changed := func(what, old string) {
		t.Helper()
		cluster.Await(t, what, func() error {
			now := tokens()
			if len(now) != 1 || now[0] == old {
				return errors.New("it is not over")
			}
			for _, r := range replicas {
				if got := r.calledWith(old); got != http.StatusUnauthorized {
					return errors.New("the old token is good still")
				}
				if got := r.calledWith(now[0]); got != http.StatusMethodNotAllowed {
					t.Errorf("got %d for the new token, want 405", got)
				}
			}
			return nil
		})
	}
	changed("a new token", tokens()[0])
	old := tokens()[0]
	if _, err := secrets.Patch(context.Background(), secretName, types.JSONPatchType,
		[]byte(`[{"op":"remove","path":"/data/path-tokens"}]`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	changed("the new token that was asked for", old)
	c.noneFailed(t, replicas)
	for _, token := range tokens() {
		if strings.Contains(log.String(), token) {
			t.Errorf("got a token in the log:\n%s", log.String())
		}
	}
	noneForbidden(t, log)
}
