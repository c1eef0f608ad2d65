// Package kubeconfigclient creates clients for the servers that plugins call, other than the API
// server. A kubeconfig file describes the server, as for the plugins of kube-apiserver
// (k8s.io/apiserver pkg/util/webhook).
package kubeconfigclient

import (
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fastadmit/fastadmit/handlers/internal/answers"
)

// requestTimeout is the longest time that a request may take, with its answer:
// upstream's.
const requestTimeout = 30 * time.Second

// Options configure a client.
type Options struct {
	// Kubeconfig is a kubeconfig file. Its current context selects the server and the
	// credentials. It must contain certificates and tokens, not the names of files. Only
	// a credential command (exec) may use files.
	Kubeconfig []byte
	// Scheme contains the types of Version. Requests are encoded in Version.
	Scheme  *runtime.Scheme
	Version schema.GroupVersion
	// Fields are decoded of an answer.
	Fields answers.Fields
	// AnswerBytesMax is the maximum length of a decompressed answer, in bytes. A longer
	// answer is an error.
	AnswerBytesMax int64
}

// New returns a client for the server. Like the client of kube-apiserver, it has no rate
// limit, and a request may take 30 s. The error says that Kubeconfig is invalid.
func New(o Options) (rest.Interface, error) {
	kubeconfig, err := clientcmd.Load(o.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.NewNonInteractiveClientConfig(*kubeconfig, "", new(clientcmd.ConfigOverrides), nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	config.Timeout = requestTimeout
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{} // it would write them to stderr
	config.ContentType = runtime.ContentTypeJSON
	config.NextProtos = answers.Protocols()
	config.NegotiatedSerializer = answers.NewSerializer(o.Scheme, o.Fields, o.Version)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return answers.Bound(next, o.AnswerBytesMax) })
	return rest.UnversionedRESTClientFor(config)
}
