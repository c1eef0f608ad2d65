package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fastadmit/fastadmit/internal/files"
)

const (
	// qps and burst limit the requests of the process to the API server, with lists and
	// watches. They are those of kube-scheduler (k8s.io/kubernetes
	// pkg/scheduler/apis/config/v1 clientConnection). With client-go's defaults, 5 and
	// 10, reviews of new namespaces would wait longer than their timeout. A
	// fairLimiter decides which waiting request is next.
	qps   = 50
	burst = 100

	// contentType is the encoding of kube-apiserver that is shortest and cheapest to
	// decode.
	contentType = runtime.ContentTypeProtobuf
)

// connect sets dial.
func (s *State) connect() error {
	o := &s.options
	shared, err := RESTConfig(o.Kubeconfig, o.Context)
	if err != nil {
		return err
	}
	shared.UserAgent = o.UserAgent
	if shared.UserAgent == "" {
		shared.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	shared.RateLimiter = newFairLimiter(qps, burst, o.Metrics)
	shared.WarningHandler = rest.NoWarnings{} // the default writes them to stderr, as text
	BoundAnswers(shared)
	connections, err := rest.HTTPClientFor(shared)
	if err != nil {
		return fmt.Errorf("cluster state: cannot make a client: %w", err)
	}
	s.dial = func(kind *Kind) (rest.Interface, error) {
		config := rest.CopyConfig(shared)
		config.GroupVersion = &kind.version
		config.NegotiatedSerializer = kind.codecs().WithoutConversion()
		config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
		if kind.protobuf {
			config.ContentType, config.AcceptContentTypes = contentType, contentType+","+runtime.ContentTypeJSON
		}
		config.APIPath = "/apis"
		if kind.version.Group == "" {
			config.APIPath = "/api"
		}
		client, err := rest.RESTClientForConfigAndClient(config, connections)
		if err != nil {
			return nil, fmt.Errorf("cluster state: cannot make a client for %s: %w", kind, err)
		}
		return client, nil
	}
	return nil
}

// RESTConfig returns the client configuration of a context of kubeconfig files or, if they are empty, of the
// cluster in which the process runs. The files are one, or several as in the variable KUBECONFIG. An empty context is
// the current one. The configuration's clients read the tokenFile for each request.
func RESTConfig(kubeconfig, context string) (*rest.Config, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			err = errors.New("this process does not run in a Pod; name a kubeconfig with --kubeconfig or a folder of " +
				"manifests with --cluster-state-dir")
		}
		if err != nil {
			return nil, fmt.Errorf("cluster state: %w", err)
		}
		useFreshToken(config)
		return config, nil
	}
	config, err := readKubeconfig(filepath.SplitList(kubeconfig), context)
	if err != nil {
		return nil, fmt.Errorf("cluster state: cannot read kubeconfig %s: %w", kubeconfig, err)
	}
	useFreshToken(config)
	return config, nil
}

// readKubeconfig does what clientcmd.ClientConfigLoadingRules does, but checks the files that
// the kubeconfig files name before they are opened. The rules block if one of them is a FIFO.
func readKubeconfig(names []string, context string) (*rest.Config, error) {
	config := clientcmdapi.NewConfig()
	for _, name := range names {
		more, err := loadKubeconfig(name)
		if len(names) > 1 && errors.Is(err, fs.ErrNotExist) {
			continue // as kubectl
		}
		if err != nil {
			return nil, err
		}
		add(config.Clusters, more.Clusters)
		add(config.AuthInfos, more.AuthInfos)
		add(config.Contexts, more.Contexts)
		config.CurrentContext = cmp.Or(config.CurrentContext, more.CurrentContext)
	}
	if context != "" {
		if config.Contexts[context] == nil {
			return nil, notNamed("context", context, config.Contexts)
		}
		config.CurrentContext = context
	}
	used := config.Contexts[config.CurrentContext]
	if used == nil {
		return nil, notNamed("current-context", config.CurrentContext, config.Contexts)
	}
	cluster := config.Clusters[used.Cluster]
	if cluster == nil {
		return nil, notNamed(fmt.Sprintf("the cluster of context %q", config.CurrentContext), used.Cluster, config.Clusters)
	}
	err := files.Check(cluster.CertificateAuthority)
	if user := config.AuthInfos[used.AuthInfo]; user != nil {
		err = errors.Join(err, files.Check(user.ClientCertificate, user.ClientKey, user.TokenFile))
	}
	if err != nil {
		return nil, err
	}
	return clientcmd.NewDefaultClientConfig(*config, new(clientcmd.ConfigOverrides)).ClientConfig()
}

// notNamed says that what a kubeconfig or a flag names is not among the entries of the kubeconfig.
func notNamed[T any](what, got string, known map[string]*T) error {
	if len(known) == 0 {
		return fmt.Errorf("%s: got %q, but the kubeconfig has none", what, got)
	}
	return fmt.Errorf("%s: got %q, want one of %s", what, got, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
}

// loadKubeconfig reads a kubeconfig file. Its relative paths are those of its folder.
func loadKubeconfig(name string) (*clientcmdapi.Config, error) {
	content, err := files.Read(name)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.Load(content)
	if err != nil {
		return nil, err
	}
	for _, cluster := range config.Clusters {
		cluster.LocationOfOrigin = name
	}
	for _, user := range config.AuthInfos {
		user.LocationOfOrigin = name
	}
	return config, clientcmd.ResolveLocalPaths(config)
}

// add adds the entries of more whose names m does not have: the first file that has a name wins.
func add[T any](m, more map[string]*T) {
	for name, entry := range more {
		if m[name] == nil {
			m[name] = entry
		}
	}
}
