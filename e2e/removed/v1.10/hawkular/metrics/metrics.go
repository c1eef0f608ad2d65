// Package metrics stands for the client of Hawkular, which cannot be downloaded any
// more. The plugin is linked with it and never uses it.
package metrics

import (
	"crypto/tls"
	"errors"
	"net/http"
	"time"
)

type (
	Client     struct{}
	Modifier   func(*http.Request) error
	Filter     func(*http.Request)
	Parameters struct {
		Tenant, Url, Token string
		TLSConfig          *tls.Config
	}
	MetricType  int
	Percentile  struct{ Value float64 }
	Bucketpoint struct {
		Percentiles []Percentile
		Samples     uint64
	}
)

const Counter MetricType = 0

func NewHawkularClient(Parameters) (*Client, error) { return nil, errors.New("no Hawkular") }
func (*Client) ReadBuckets(MetricType, ...Modifier) ([]*Bucketpoint, error) {
	return nil, errors.New("no Hawkular")
}
func Tenant(string) Modifier              { return nil }
func Filters(...Filter) Modifier          { return nil }
func TagsFilter(map[string]string) Filter { return nil }
func BucketsFilter(int) Filter            { return nil }
func StartTimeFilter(time.Time) Filter    { return nil }
func EndTimeFilter(time.Time) Filter      { return nil }
func PercentilesFilter([]float64) Filter  { return nil }
