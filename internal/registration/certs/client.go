package certs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fastadmit/fastadmit/cluster"
)

const (
	// requestMax is how long an answer is waited for.
	requestMax = 10 * time.Second

	// watchMax is how long a watch lasts. A new one begins with what there is, so
	// what an old one missed is noticed then.
	watchMax = 5 * time.Minute
)

func secretsPath(namespace string) string { return "/api/v1/namespaces/" + namespace + "/secrets" }

const clusterRolesPath = "/apis/rbac.authorization.k8s.io/v1/clusterroles"

// A client speaks JSON with the API server. client-go's typed clients come with
// all of Kubernetes' API, see package cluster.
type client struct{ rest *rest.RESTClient }

func newClient(config *rest.Config, c *clock) (*client, error) {
	config = rest.CopyConfig(config)
	c.listenTo(config)
	cluster.BoundAnswers(config)
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // the Status of an error
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.WarningHandler = rest.NoWarnings{} // it would write them to stderr, as text
	made, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("cannot create a client for the API server: %w", err)
	}
	return &client{made}, nil
}

// get returns an object, nil if there is none.
func (c *client) get(ctx context.Context, path, name string) ([]byte, error) {
	object, err := c.do(ctx, c.rest.Get().AbsPath(path, name))
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return object, err
}

// write sends an object: POST to path, or PUT to path/name.
func (c *client) write(ctx context.Context, request *rest.Request, object []byte) ([]byte, error) {
	return c.do(ctx, request.SetHeader("Content-Type", runtime.ContentTypeJSON).Body(object))
}

// apply applies an object by server-side apply, also to fields that others own.
func (c *client) apply(ctx context.Context, path, name, manager string, object []byte) ([]byte, error) {
	return c.do(ctx, c.rest.Patch(types.ApplyPatchType).AbsPath(path, name).
		Param("fieldManager", manager).Param("force", "true").Body(object))
}

func (c *client) do(ctx context.Context, request *rest.Request) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestMax)
	defer cancel()
	result := request.Do(ctx)
	err := result.Error()
	if apierrors.IsUnexpectedServerError(err) {
		err = errors.New(err.Error()) // a page of some proxy: its 404 says nothing about the object
	}
	if err != nil {
		return nil, err
	}
	return result.Raw()
}

// listen sends changed when an object changes, until ctx ends. The events of the watch are
// not decoded: a pass reads all objects.
func (m *Manager) listen(ctx context.Context, path, name string) {
	backoff, fault := retries, ""
	for ctx.Err() == nil {
		err := m.hear(ctx, path, name)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			backoff, fault = retries, ""
		case err.Error() != fault:
			fault = err.Error()
			m.o.Log.Warn("cannot watch the objects of the certificates, reading them periodically", "path", path, "name", name, "every", resync, "error", fault)
		}
		select {
		case <-ctx.Done():
		case <-time.After(backoff.Step()):
		}
	}
}

// hear sends changed for each event of one watch. It returns an error if the watch could not
// be started.
func (m *Manager) hear(ctx context.Context, path, name string) error {
	ctx, cancel := context.WithTimeout(ctx, watchMax+requestMax) // the second is for one that hangs
	defer cancel()
	events, err := m.client.rest.Get().AbsPath(path).Param("watch", "true").
		Param("fieldSelector", "metadata.name="+name).Param("timeoutSeconds", strconv.Itoa(int(watchMax.Seconds()))).Stream(ctx)
	if err != nil {
		return err
	}
	defer events.Close()
	for some := make([]byte, 4096); ; {
		n, err := events.Read(some)
		if n > 0 {
			m.changed.Send()
		}
		if err != nil {
			return nil // it ended, as all do
		}
	}
}

// Rules returns the RBAC rules that Run needs: those of a Role in SecretNamespace and those
// of a ClusterRole. They do not allow creating the Secret, which may be empty at first: RBAC
// cannot restrict the verb create to a name (k8s.io/api/rbac/v1 PolicyRule), and a user who may
// create Secrets can get the tokens of all accounts in the namespace. For webhook configurations,
// create is restricted to a name, because server-side apply checks it with the name.
func (o *Options) Rules() (role, clusterRole []rbacv1.PolicyRule) {
	role = []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{o.SecretName}, Verbs: []string{"get", "watch", "update"}},
	}
	if o.Deployment != "" {
		role = append(role,
			rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, ResourceNames: []string{o.Deployment}, Verbs: []string{"get"}},
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create"}})
	}
	own, err := o.configurations(o.Configurations)
	if err != nil {
		own = nil // New says what is wrong with them
	}
	for _, s := range services(own) {
		rule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"services"}, ResourceNames: []string{s.name}, Verbs: []string{"get"}}
		if s.namespace == o.SecretNamespace {
			role = append(role, rule)
		} else {
			clusterRole = append(clusterRole, rule)
		}
	}
	for _, kind := range configurationKinds {
		verbs := []string{"get", "watch", "patch"}
		names := o.existing(kind)
		for _, c := range own {
			if c.kind == kind {
				names = append(names, c.name)
				verbs = []string{"get", "watch", "patch", "create"}
			}
		}
		if len(names) > 0 {
			clusterRole = append(clusterRole, rbacv1.PolicyRule{
				APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{kind.resource}, ResourceNames: names, Verbs: verbs,
			})
		}
	}
	if o.Owner != "" {
		clusterRole = append(clusterRole, rbacv1.PolicyRule{
			APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, ResourceNames: []string{o.Owner}, Verbs: []string{"get"},
		})
	}
	return role, clusterRole
}
