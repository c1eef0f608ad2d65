package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"

	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/handlers/internal/answers"
)

const (
	// answerBytesMax is the maximum length of a webhook's answer. The largest object that
	// kube-apiserver accepts has 3 MiB; a patch that replaces it has 4 MiB in base64. This
	// is twice that.
	answerBytesMax = 8 << 20

	// answerHeaderBytesMax is the maximum length of an answer's header: four times that of a
	// request to fastadmit.
	answerHeaderBytesMax = 64 << 10

	// idleConnectionsMax and idleTimeout bound the connections to a webhook that wait for the next
	// call; they are kube-apiserver's (k8s.io/client-go transport/cache.go).
	idleConnectionsMax = 25
	idleTimeout        = 90 * time.Second

	// dialTimeout and handshakeTimeout are kube-apiserver's.
	dialTimeout      = 30 * time.Second
	handshakeTimeout = 10 * time.Second
)

// negotiated encodes and decodes AdmissionReviews as kube-apiserver does, but does not decode the
// field request, which an answer may repeat.
var negotiated = func() runtime.NegotiatedSerializer {
	scheme := runtime.NewScheme()
	utilruntime.Must(admissionv1beta1.AddToScheme(scheme))
	utilruntime.Must(admissionv1.AddToScheme(scheme))
	fields := answers.Status() // an answer with an HTTP error may be a Status
	fields["response"] = answers.Fields{
		"uid": nil, "allowed": nil, "status": answers.Status(), "patch": nil, "patchType": nil,
		"auditAnnotations": answers.Listed, "warnings": answers.Listed,
	}
	return answers.NewSerializer(scheme, fields, admissionv1beta1.SchemeGroupVersion, admissionv1.SchemeGroupVersion)
}()

// newClient makes the client of a webhook (k8s.io/apiserver pkg/util/webhook/client.go
// HookClient). services may be nil if there is no cluster.
func newClient(c *admissionregistrationv1.WebhookClientConfig, known *credentials, services *cluster.Objects[*corev1.Service]) (*rest.RESTClient, error) {
	config, dial, err := newConfig(c, known, services)
	if err != nil {
		return nil, err
	}
	config.CAData = append(config.CAData, c.CABundle...)
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{} // it would log the warnings of webhooks
	config.UserAgent = "fastadmit-admission"
	config.NextProtos = answers.Protocols()
	config.ContentType = runtime.ContentTypeJSON
	config.NegotiatedSerializer = negotiated
	secured, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	if secured == nil {
		secured = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	transport := utilnet.SetTransportDefaults(&http.Transport{
		TLSClientConfig: secured, DialContext: dial, TLSHandshakeTimeout: handshakeTimeout,
		MaxIdleConnsPerHost: idleConnectionsMax, IdleConnTimeout: idleTimeout, MaxResponseHeaderBytes: answerHeaderBytesMax,
	})
	wrapped, err := rest.HTTPWrappersForConfig(config, answers.Bound(roundTripper{transport}, answerBytesMax))
	if err != nil {
		return nil, err
	}
	return rest.UnversionedRESTClientForConfigAndClient(config, &http.Client{Transport: wrapped, CheckRedirect: refuseRedirect})
}

// errRedirect is the failure of a webhook that answers with a redirect. Following it would send
// the object, and perhaps the credentials, to a server that the webhook chooses.
var errRedirect = errors.New("it redirects, and redirects are not followed")

func refuseRedirect(*http.Request, []*http.Request) error { return errRedirect }

type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

func newConfig(c *admissionregistrationv1.WebhookClientConfig, known *credentials, services *cluster.Objects[*corev1.Service]) (*rest.Config, dialer, error) {
	direct := (&net.Dialer{Timeout: dialTimeout}).DialContext
	if s := c.Service; s != nil {
		name := s.Name + "." + s.Namespace + ".svc"
		host := net.JoinHostPort(name, strconv.Itoa(int(*s.Port)))
		config := known.configFor(host)
		config.Host, config.APIPath, config.ServerName = "https://"+host, servicePath(s), name
		dial := func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == host {
				var err error
				if address, err = resolve(ctx, services, s); err != nil {
					return nil, err
				}
			}
			return direct(ctx, network, address)
		}
		return config, dial, nil
	}
	u, err := url.Parse(*c.URL)
	if err != nil {
		return nil, nil, err
	}
	target := u.Host
	if u.Port() == "" {
		target = net.JoinHostPort(u.Host, "443")
	}
	config := known.configFor(target)
	config.Host, config.APIPath = u.Scheme+"://"+u.Host, u.Path
	return config, direct, nil
}

// resolve returns the address of a Service as kube-apiserver does (k8s.io/apiserver
// pkg/util/proxy ResolveCluster).
func resolve(ctx context.Context, services *cluster.Objects[*corev1.Service], s *admissionregistrationv1.ServiceReference) (string, error) {
	if services == nil {
		return "", errors.New("there is no cluster that has the service")
	}
	found, err := services.GetLive(ctx, s.Namespace, s.Name)
	if err != nil {
		return "", err
	}
	spec := &found.Spec
	switch spec.Type {
	case corev1.ServiceTypeExternalName:
		return net.JoinHostPort(spec.ExternalName, strconv.Itoa(int(*s.Port))), nil
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort, "":
	default:
		return "", fmt.Errorf("unsupported service type %q", spec.Type)
	}
	if spec.ClusterIP == corev1.ClusterIPNone {
		return "", errors.New(`cannot route to service with ClusterIP "None"`)
	}
	for i := range spec.Ports {
		if spec.Ports[i].Port == *s.Port {
			return net.JoinHostPort(spec.ClusterIP, strconv.Itoa(int(*s.Port))), nil
		}
	}
	return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", *s.Port, s.Name))
}

// A roundTripper sends the message in the context of a request as its body. A retry sends it again.
type roundTripper struct{ next http.RoundTripper }

type messageKey struct{}

// RoundTrip implements http.RoundTripper.
func (t roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	if m, ok := request.Context().Value(messageKey{}).(*message); ok {
		if request.Body != nil {
			_ = request.Body.Close() // it is empty
		}
		request = request.Clone(request.Context())
		request.Body, request.ContentLength = m.open(), m.length()
		request.GetBody = func() (io.ReadCloser, error) { return m.open(), nil }
	}
	return t.next.RoundTrip(request)
}
