package access

// rule is whom a rule names.
type rule struct {
	who        group
	old        group // whom it named before secure RBAC
	systemOnly bool  // its scope is the system
}

// Whom most rules name. Ironic's own names of them are SYSTEM_READER and so on.
const (
	readers   = systemReader | systemService | elevatedService
	members   = systemMember | elevatedService
	admins    = systemAdmin
	observers = oldAdmin | oldObserver

	projectReaders = readers | ownerReader | lesseeReader | ownerService
	projectMembers = members | systemService | ownerMember | lesseeMember
	ownerReaders   = readers | ownerReader | ownerService
	ownerMembers   = members | systemService | ownerMember | ownerService
	ownerManagers  = members | systemService | ownerAdmin | ownerManager | ownerService
	ownerAdmins    = admins | systemService | ownerAdmin | ownerManager | ownerService
	// users of a node: members of the owner's project, those who lead the lessee's.
	users       = ownerMembers | lesseeAdmin | lesseeManager
	volumeUsers = ownerManagers | lesseeAdmin | lesseeManager
	apiReaders  = anyReader | anyService
)

// rules is Ironic's default policy: that of 21.4 with the names that came later. The names lack their common beginning "baremetal:".
var rules = map[string]rule{
	"node:create":                             {who: admins | systemService, old: oldAdmin},
	"node:create:self_owned_node":             {who: anyAdmin | anyService},
	"node:list":                               {who: apiReaders, old: observers},
	"node:list_all":                           {who: readers, old: observers},
	"node:get":                                {who: projectReaders, old: observers},
	"node:get:filter_threshold":               {who: readers, old: observers},
	"node:get:last_error":                     {who: ownerReaders, old: observers},
	"node:get:reservation":                    {who: ownerReaders, old: observers},
	"node:get:driver_internal_info":           {who: ownerReaders, old: observers},
	"node:get:driver_info":                    {who: ownerReaders, old: observers},
	"node:update":                             {who: projectMembers, old: oldAdmin},
	"node:update:driver_info":                 {who: ownerMembers, old: oldAdmin},
	"node:update:properties":                  {who: ownerMembers, old: oldAdmin},
	"node:update:chassis_uuid":                {who: admins, old: oldAdmin},
	"node:update:instance_uuid":               {who: ownerMembers, old: oldAdmin},
	"node:update:lessee":                      {who: ownerMembers, old: oldAdmin},
	"node:update:owner":                       {who: members, old: oldAdmin},
	"node:update:driver_interfaces":           {who: ownerManagers, old: oldAdmin},
	"node:update:network_data":                {who: ownerMembers, old: oldAdmin},
	"node:update:conductor_group":             {who: members, old: oldAdmin},
	"node:update:name":                        {who: ownerMembers, old: oldAdmin},
	"node:update:retired":                     {who: ownerMembers, old: oldAdmin},
	"node:update:shard":                       {who: admins, old: oldAdmin},
	"node:update:parent_node":                 {who: members, old: oldAdmin},
	"node:update:disable_power_off":           {who: admins, old: oldAdmin},
	"node:update_extra":                       {who: projectMembers, old: oldAdmin},
	"node:update_instance_info":               {who: users, old: oldAdmin},
	"node:update_owner_provisioned":           {who: admins, old: oldAdmin, systemOnly: true},
	"node:disable_cleaning":                   {who: admins, old: oldAdmin, systemOnly: true},
	"node:delete":                             {who: admins, old: oldAdmin},
	"node:delete:self_owned_node":             {who: ownerAdmin},
	"node:validate":                           {who: users, old: oldAdmin},
	"node:set_maintenance":                    {who: users, old: oldAdmin},
	"node:clear_maintenance":                  {who: users, old: oldAdmin},
	"node:get_boot_device":                    {who: ownerManagers, old: observers},
	"node:set_boot_device":                    {who: ownerManagers, old: oldAdmin},
	"node:get_indicator_state":                {who: projectReaders, old: observers},
	"node:set_indicator_state":                {who: ownerMembers, old: oldAdmin},
	"node:inject_nmi":                         {who: ownerManagers, old: oldAdmin},
	"node:get_states":                         {who: projectReaders, old: observers},
	"node:set_power_state":                    {who: projectMembers, old: oldAdmin},
	"node:set_boot_mode":                      {who: projectMembers, old: oldAdmin},
	"node:set_secure_boot":                    {who: projectMembers, old: oldAdmin},
	"node:set_provision_state":                {who: users, old: oldAdmin},
	"node:set_raid_state":                     {who: ownerMembers, old: oldAdmin},
	"node:get_console":                        {who: ownerMembers, old: oldAdmin},
	"node:set_console_state":                  {who: ownerMembers, old: oldAdmin},
	"node:vif:list":                           {who: projectReaders, old: oldAdmin},
	"node:vif:attach":                         {who: users, old: oldAdmin},
	"node:vif:detach":                         {who: users, old: oldAdmin},
	"node:traits:list":                        {who: projectReaders, old: observers},
	"node:traits:set":                         {who: ownerManagers, old: oldAdmin},
	"node:traits:delete":                      {who: ownerManagers, old: oldAdmin},
	"node:bios:get":                           {who: projectReaders, old: observers},
	"node:firmware:get":                       {who: projectReaders, old: observers},
	"node:vmedia:get":                         {who: projectReaders, old: observers},
	"node:vmedia:attach":                      {who: projectMembers, old: oldAdmin},
	"node:vmedia:detach":                      {who: projectMembers, old: oldAdmin},
	"node:history:get":                        {who: ownerReaders, old: observers},
	"node:inventory:get":                      {who: ownerReaders, old: observers},
	"node:vendor_passthru":                    {who: admins, old: oldAdmin},
	"shards:get":                              {who: readers, old: observers},
	"port:get":                                {who: projectReaders, old: observers},
	"port:list":                               {who: apiReaders, old: observers},
	"port:list_all":                           {who: readers, old: observers},
	"port:create":                             {who: ownerAdmins, old: oldAdmin},
	"port:delete":                             {who: ownerAdmins, old: oldAdmin},
	"port:update":                             {who: ownerManagers, old: oldAdmin},
	"portgroup:get":                           {who: projectReaders, old: observers},
	"portgroup:list":                          {who: apiReaders, old: observers},
	"portgroup:list_all":                      {who: readers, old: observers},
	"portgroup:create":                        {who: ownerAdmins, old: oldAdmin},
	"portgroup:delete":                        {who: ownerAdmins, old: oldAdmin},
	"portgroup:update":                        {who: ownerManagers, old: oldAdmin},
	"chassis:get":                             {who: readers, old: observers, systemOnly: true},
	"chassis:create":                          {who: admins, old: oldAdmin, systemOnly: true},
	"chassis:delete":                          {who: admins, old: oldAdmin, systemOnly: true},
	"chassis:update":                          {who: members, old: oldAdmin, systemOnly: true},
	"driver:get":                              {who: readers, old: observers, systemOnly: true},
	"driver:get_properties":                   {who: readers, old: observers, systemOnly: true},
	"driver:get_raid_logical_disk_properties": {who: readers, old: observers, systemOnly: true},
	"driver:vendor_passthru":                  {who: admins, old: oldAdmin, systemOnly: true},
	"conductor:get":                           {who: readers, old: observers, systemOnly: true},
	"volume:list":                             {who: apiReaders, old: observers},
	"volume:list_all":                         {who: readers, old: observers},
	"volume:get":                              {who: projectReaders, old: observers},
	"volume:create":                           {who: volumeUsers, old: oldAdmin},
	"volume:delete":                           {who: volumeUsers, old: oldAdmin},
	"volume:update":                           {who: users, old: oldAdmin},
	"volume:view_target_properties":           {who: readers | anyAdmin, old: oldAdmin},
	"allocation:get":                          {who: readers | ownerReader, old: observers},
	"allocation:list":                         {who: apiReaders, old: observers},
	"allocation:list_all":                     {who: readers, old: observers},
	"allocation:create":                       {who: members | anyMember, old: oldAllocator},
	"allocation:create_restricted":            {who: members, old: oldAllocator},
	"allocation:delete":                       {who: members | ownerMember, old: oldAdmin},
	"allocation:update":                       {who: members | ownerMember, old: oldAdmin},
	"events:post":                             {who: admins, old: oldAdmin, systemOnly: true},
	"deploy_template:get":                     {who: readers, old: observers, systemOnly: true},
	"deploy_template:create":                  {who: admins, old: oldAdmin, systemOnly: true},
	"deploy_template:delete":                  {who: admins, old: oldAdmin, systemOnly: true},
	"deploy_template:update":                  {who: admins, old: oldAdmin, systemOnly: true},
	"runbook:get":                             {who: readers | ownerReader | anyService, old: observers},
	"runbook:list":                            {who: apiReaders, old: observers},
	"runbook:list_all":                        {who: readers, old: observers},
	"runbook:create":                          {who: members | anyManager | anyService, old: oldAdmin},
	"runbook:update":                          {who: members | ownerManager | anyService, old: oldAdmin},
	"runbook:delete":                          {who: members | ownerManager | anyService, old: oldAdmin},
	"runbook:update:public":                   {who: members, old: oldAdmin},
	"runbook:update:owner":                    {who: members, old: oldAdmin},
	"runbook:use":                             {who: members | ownerManager | anyService, old: oldAdmin},
	"inspection_rule:get":                     {who: readers, old: observers, systemOnly: true},
	"inspection_rule:create":                  {who: admins, old: oldAdmin, systemOnly: true},
	"inspection_rule:update":                  {who: admins, old: oldAdmin, systemOnly: true},
	"inspection_rule:delete":                  {who: admins, old: oldAdmin, systemOnly: true},
}
