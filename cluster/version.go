package cluster

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/json"
)

// versionMax is how long the API server may take to answer with its version. It needs no etcd for
// that.
const versionMax = 5 * time.Second

// A VersionAsker asks an API server for its version. Each time, it makes a new connection, so that
// with several API servers behind one address any of them may answer.
type VersionAsker struct{ client *rest.RESTClient }

// NewVersionAsker returns a VersionAsker. config may be changed by it.
func NewVersionAsker(config *rest.Config) (*VersionAsker, error) {
	config.Dial = new(net.Dialer).DialContext // so that other clients do not share the connections
	config.Timeout = versionMax
	config.NegotiatedSerializer = discovered.codecs().WithoutConversion()
	config.GroupVersion = &discovered.version
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("cluster state: cannot ask for the version of the API server: %w", err)
	}
	return &VersionAsker{client}, nil
}

// Ask returns the minor release as which the API server behaves, such as 1.34. With
// --emulated-version, it is the emulated one. By default, all users may read it
// (ClusterRole system:public-info-viewer).
func (a *VersionAsker) Ask(ctx context.Context) (string, error) {
	defer utilnet.CloseIdleConnectionsFor(a.client.Client.Transport)
	text, err := a.client.Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return "", fmt.Errorf("cluster state: cannot get the version of the API server: %w", err)
	}
	var v struct {
		Major          string `json:"major"`
		Minor          string `json:"minor"`
		EmulationMajor string `json:"emulationMajor"`
		EmulationMinor string `json:"emulationMinor"`
	}
	if err := json.UnmarshalCaseSensitivePreserveInts(text, &v); err != nil {
		return "", fmt.Errorf("cluster state: cannot read the version of the API server: %w", err)
	}
	if v.EmulationMajor != "" && v.EmulationMinor != "" {
		v.Major, v.Minor = v.EmulationMajor, v.EmulationMinor
	}
	// Managed services add a suffix, as in 34+.
	return v.Major + "." + strings.TrimRightFunc(v.Minor, func(r rune) bool { return r < '0' || r > '9' }), nil
}
